# make            the program, build/sluice
# make demo       everything from a fresh clone to tokens from a streamed model
# make check      everything from a fresh clone to the tests passing
# make deps       install what is missing (Debian and Fedora)
# make asan tsan  the tests under sanitizers, in a build folder of their own
# make check-long 200 kills and 10,000 lines of batch, which takes minutes
# make bench-NAME one bench; its table goes to stdout, build/bench/NAME.json
CC     ?= cc
ifeq ($(origin CC),default)
CC     := gcc
endif
CFLAGS ?= -O2 -g
BUILD  ?= build
PREFIX ?= /usr/local
PKGS   := liburing jansson libpcre2-8
WARN   := -std=c11 -Wall -Wextra -Wshadow -Wpointer-arith -Wvla -Wstrict-prototypes \
          -Wconversion -Wno-sign-conversion -Werror
FIXED  := -D_GNU_SOURCE -I. -fopenmp -ffp-contract=off -fno-math-errno -MMD -MP
ARCH   := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
LDLIBS  = $(shell pkg-config --libs $(PKGS)) -lm -lpthread

LIBSRC := $(wildcard io/*.c compute/*.c sched/*.c model/*.c)
ifneq ($(ARCH),x86_64)
LIBSRC := $(filter-out %_avx2.c %_avx512.c,$(LIBSRC))
endif
BINSRC  := $(wildcard bin/*.c)
LIBOBJ  := $(LIBSRC:%.c=$(BUILD)/%.o)
BINOBJ  := $(BINSRC:%.c=$(BUILD)/%.o)
CMDOBJ  := $(filter-out $(BUILD)/bin/sluice.o,$(BINOBJ))
TESTSRC := $(wildcard tests/*/test_*.c tests/*/fuzz_*.c)
HELPOBJ := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(TESTSRC),$(wildcard tests/*/*.c)))
TESTS   := $(TESTSRC:%.c=$(BUILD)/%)
BENCHES := $(patsubst bench/bench_%.c,%,$(wildcard bench/bench_*.c))

ifndef V
Q := @
say = @echo '  $(1)	$@'
endif

.PHONY: all tests check check-long check-built demo deps asan tsan layers clean install help FORCE $(BENCHES:%=bench-%)
all: $(BUILD)/sluice

help:
	@sed -n 's/^# //p' Makefile | head -7

# Objects built with other flags are stale: remember the flags, compare, redo.
FLAGS := $(CC) $(CFLAGS) $(WARN) $(FIXED)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@pkg-config --exists $(PKGS) || { for p in $(PKGS); do pkg-config --exists $$p || \
	  echo "missing library: $$p (run 'make deps')" >&2; done; exit 1; }
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
FORCE:

# One line an ISA: the rest of the program runs on every machine of its kind.
$(BUILD)/%_avx2.o: ISA := -mavx2 -mfma -mf16c
$(BUILD)/%_avx512.o: ISA := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma
$(BUILD)/%.o: %.c $(BUILD)/flags
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(WARN) $(FIXED) $(ISA) -c -o $@ $<

$(BUILD)/sluice: $(BINOBJ) $(LIBOBJ)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -fopenmp -o $@ $^ $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(HELPOBJ) $(CMDOBJ) $(LIBOBJ)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -fopenmp -o $@ $^ $(LDLIBS) -lcmocka

$(BUILD)/bench_%: $(BUILD)/bench/bench_%.o $(patsubst %.c,$(BUILD)/%.o,$(filter-out bench/bench_%.c,$(wildcard bench/*.c))) $(CMDOBJ) $(LIBOBJ)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -fopenmp -o $@ $^ $(LDLIBS)

$(BENCHES:%=bench-%): bench-%: $(BUILD)/bench_%
	@mkdir -p $(BUILD)/bench
	$(BUILD)/bench_$* $(ARGS)

tests: $(BUILD)/sluice $(TESTS)
check: deps
	@$(MAKE) --no-print-directory check-built
check-built: layers tests
	@BUILD=$(BUILD) sh tests/run.sh
check-long: $(BUILD)/sluice
	@BUILD=$(BUILD) KILLS=200 LINES=10000 LIMIT=3600 sh tests/run.sh batch_kill batch_scale
asan:
	@$(MAKE) --no-print-directory check-built BUILD=$(BUILD)/asan \
	  CFLAGS='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'
tsan: export TSAN_OPTIONS := ignore_noninstrumented_modules=1
tsan:
	@$(MAKE) --no-print-directory check-built BUILD=$(BUILD)/tsan CC=clang \
	  CFLAGS='-O1 -g -fsanitize=thread -fno-omit-frame-pointer'
layers:
	@sh tests/layers.sh
demo: deps
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) sh bin/demo.sh
deps:
	@sh bin/deps.sh
install: all
	install -D $(BUILD)/sluice $(DESTDIR)$(PREFIX)/bin/sluice
clean:
	rm -rf $(BUILD)
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
