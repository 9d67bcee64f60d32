# make            the program, build/sluice
# make install    program, header, libraries; PREFIX=/usr/local, DESTDIR=
# make demo       everything from a fresh clone to tokens from a streamed model
# make check      everything from a fresh clone to the tests passing
# make deps       install what is missing (Debian and Fedora)
# make asan tsan  the tests under sanitizers, in a build folder of their own
# make check-long kills, damage, thousands of lines, a million replies: minutes
# make ARCH=generic BUILD=build/generic   the reference kernels alone
# make MPI=1      build/mpi/sluice, for several machines (model/machines/README.md)
# make check-mpi  its tests; NP="2 3" says with how many processes
# make bench-NAME one bench; its table goes to stdout, build/bench/NAME.json
CC     ?= cc
ifeq ($(origin CC),default)
CC     := gcc
endif
CFLAGS ?= -O2 -g
ifeq ($(MPI),)
BUILD  ?= build
else
# MPI=1: Open MPI, or MPICH where that is what there is; or one by name,
# MPI=ompi-c or MPI=mpich.
MPIPKG := $(if $(filter 1,$(MPI)),$(firstword $(foreach p,ompi-c mpich,$(shell pkg-config --exists $p && echo $p)) ompi-c),$(MPI))
BUILD  ?= build/mpi
MPICFLAGS := $(shell pkg-config --cflags $(MPIPKG) 2>/dev/null)
endif
PREFIX ?= /usr/local
PKGS   := liburing jansson libcrypto
BINPKG := libmicrohttpd $(MPIPKG)
ifeq ($(shell pkg-config --exists libsystemd 2>/dev/null && echo yes),yes)
BINPKG += libsystemd
SYSTEMD := -DHAVE_SYSTEMD
endif
ifeq ($(shell pkg-config --exists libedit 2>/dev/null && echo yes),yes)
BINPKG += libedit
EDIT := -DHAVE_LIBEDIT $(shell pkg-config --cflags libedit)
endif
ifeq ($(shell pkg-config --exists zlib 2>/dev/null && echo yes),yes)
BINPKG += zlib
PACKED := -DHAVE_ZLIB $(shell pkg-config --cflags zlib)
endif
ifeq ($(shell pkg-config --exists libzstd 2>/dev/null && echo yes),yes)
BINPKG += libzstd
PACKED += -DHAVE_ZSTD $(shell pkg-config --cflags libzstd)
endif
WARN   := -std=c11 -Wall -Wextra -Wshadow -Wpointer-arith -Wvla -Wstrict-prototypes \
          -Wconversion -Wno-sign-conversion -Werror
FIXED  := -D_GNU_SOURCE -I. -fopenmp -ffp-contract=off -fno-math-errno -MMD -MP \
          -fPIC -fvisibility=hidden
ARCH   := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
LDLIBS  = $(shell pkg-config --libs $(PKGS)) -lm -lpthread
BINLIBS = $(shell pkg-config --libs $(BINPKG))

LIBSRC := $(wildcard io/*.c compute/*.c sched/*.c model/*.c \
            sched/*/*.c model/*/*.c)
ifeq ($(ARCH),x86_64)
LIBSRC += $(wildcard compute/x86/*.c)
FIXED  += -DKERN_X86
endif
BINSRC  := $(wildcard bin/*.c bin/*/*.c bin/*/*/*.c)
ifeq ($(MPI),)
LIBSRC  := $(filter-out model/machines/%,$(LIBSRC))
BINSRC  := $(filter-out bin/cli/machines_mpi.c,$(BINSRC))
else
BINSRC  := $(filter-out bin/cli/machines_alone.c,$(BINSRC))
endif
LIBOBJ  := $(LIBSRC:%.c=$(BUILD)/%.o)
BINOBJ  := $(BINSRC:%.c=$(BUILD)/%.o)
APIOBJ  := $(filter-out $(BUILD)/model/sim/% $(BUILD)/model/tools/% $(BUILD)/model/machines/%,$(LIBOBJ))
VERSION := $(shell sed -n 's/.define SLUICE_VERSION "\(.*\)"/\1/p' model/sluice.h)
SONAME  := libsluice.so.$(firstword $(subst ., ,$(VERSION)))
CMDOBJ  := $(filter-out $(BUILD)/bin/sluice.o,$(BINOBJ))
TESTSRC := $(wildcard tests/*/test_*.c tests/*/fuzz_*.c)
HELPOBJ := $(patsubst %.c,$(BUILD)/%.o,$(filter-out $(TESTSRC) tests/embed/%,$(wildcard tests/*/*.c)))
TESTS   := $(TESTSRC:%.c=$(BUILD)/%)
BENCHES := $(patsubst bench/bench_%.c,%,$(wildcard bench/bench_*.c))

ifndef V
Q := @
say = @echo '  $(1)	$@'
endif

.PHONY: check-mpi all tests check check-long check-built demo deps asan tsan layers clean install install-built help FORCE $(BENCHES:%=bench-%)
all: $(BUILD)/sluice $(BUILD)/libsluice.a $(BUILD)/$(SONAME)

help:
	@sed -n 's/^# //p' Makefile | head -11

# Objects built with other flags are stale: remember the flags, compare, redo.
FLAGS := $(CC) $(CFLAGS) $(WARN) $(FIXED) $(SYSTEMD) $(EDIT) $(PACKED) $(MPICFLAGS)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@pkg-config --exists $(PKGS) $(BINPKG) || { for p in $(PKGS) $(BINPKG); do pkg-config --exists $$p || \
	  echo "missing library: $$p (run 'make deps')" >&2; done; exit 1; }
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' > $@
FORCE:

# One line an ISA: the rest of the program runs on every machine of its kind.
$(BUILD)/%_sse42.o: ISA := -msse4.2 -mpclmul
$(BUILD)/%_avx2.o: ISA := -mavx2 -mfma -mf16c -mbmi2 -mpopcnt
$(BUILD)/%_gfni.o: ISA := -mavx2 -mfma -mf16c -mbmi2 -mpopcnt -mgfni
$(BUILD)/%_avx512.o: ISA := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mbmi2 -mpopcnt
$(BUILD)/bin/serve/net/system.o: FIXED += $(SYSTEMD)
$(BUILD)/bin/cli/line.o: FIXED += $(EDIT)
$(BUILD)/bin/batch/unpack.o: FIXED += $(PACKED)
$(BUILD)/model/machines/%.o: FIXED += $(MPICFLAGS)
$(BUILD)/bin/serve/page_files.o: $(wildcard bin/serve/page/*)
$(BUILD)/%.o: %.c $(BUILD)/flags
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(WARN) $(FIXED) $(ISA) -c -o $@ $<

$(BUILD)/sluice: $(BINOBJ) $(LIBOBJ)
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -fopenmp -o $@ $^ $(LDLIBS) $(BINLIBS)

# Only what sluice.h declares can be seen in the libraries: the rest is hidden,
# and local once the archive is one object.
$(BUILD)/libsluice.a: $(APIOBJ)
	$(call say,AR)
	$(Q)ld -r -d -o $(BUILD)/libsluice.o $^
	$(Q)objcopy --localize-hidden $(BUILD)/libsluice.o
	$(Q)rm -f $@ && ar rc $@ $(BUILD)/libsluice.o
$(BUILD)/$(SONAME): $(APIOBJ) model/sluice.map
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -fopenmp -shared -Wl,-soname,$(SONAME) \
	  -Wl,--version-script=model/sluice.map -o $@ $(APIOBJ) $(LDLIBS)

# What a test or a bench takes its objects from: a list of them, no copy.
$(BUILD)/objects.a: $(HELPOBJ) $(CMDOBJ) $(LIBOBJ)
	$(call say,AR)
	$(Q)rm -f $@ && ar rcT $@ $^

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/objects.a
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -fopenmp -o $@ $^ $(LDLIBS) $(BINLIBS) -lcmocka

# The expression of the published tokenizer, where the machine can run it.
$(BUILD)/tests/property/test_tok_split: LDLIBS += $(shell pkg-config --libs libpcre2-8 2>/dev/null)

$(BUILD)/bench_%: $(BUILD)/bench/bench_%.o $(patsubst %.c,$(BUILD)/%.o,$(filter-out bench/bench_%.c,$(wildcard bench/*.c))) $(BUILD)/objects.a
	$(call say,LD)
	$(Q)$(CC) $(CFLAGS) -fopenmp -o $@ $^ $(LDLIBS) $(BINLIBS)

$(BENCHES:%=bench-%): bench-%: $(BUILD)/bench_%
	@mkdir -p $(BUILD)/bench
	$(BUILD)/bench_$* $(ARGS)

tests: all $(TESTS) $(BENCHES:%=$(BUILD)/bench_%)
check: deps
	@$(MAKE) --no-print-directory check-built
check-built: layers tests
	@BUILD=$(BUILD) sh tests/run.sh
# Several processes: NP="2 3" says how many.
check-mpi:
	@$(MAKE) --no-print-directory MPI=$(or $(MPI),1) all
	@BUILD=$(if $(MPI),$(BUILD),build/mpi) sh tests/run.sh mpi/mpi_
check-long: tests
	@BUILD=$(BUILD) KILLS=200 LINES=10000 MUTATIONS=10000 REPLIES=1000000 FORMS=10000 TOOLS=20 SCHEMAS=1000 STREAMS=500 REQUESTS=10000 TOKENS=210 \
	  SEEDS="$$(seq -s ' ' 100)" ALL=yes LIMIT=7200 sh tests/run.sh --times \
	  _kill batch_scale sidecar fuzz/test_files property/test_reply test_forms test_calls batch_tools \
	  grammar_schemas fuzz/test_chat replay_counts fault/test_engine fault/test_reader.c property/test_share property/test_packed \
	  serve
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
	@$(MAKE) --no-print-directory install-built
install-built: D = $(DESTDIR)$(PREFIX)
install-built:
	install -D $(BUILD)/sluice $(D)/bin/sluice
	install -D -m 644 model/sluice.h $(D)/include/sluice.h
	install -D -m 644 $(BUILD)/libsluice.a $(D)/lib/libsluice.a
	install -D $(BUILD)/$(SONAME) $(D)/lib/$(SONAME)
	ln -sf $(SONAME) $(D)/lib/libsluice.so
	install -D -m 644 bin/serve/README.md $(D)/share/doc/sluice/serve.md
	install -D -m 644 bin/serve/sluice.socket $(D)/lib/systemd/system/sluice.socket
	sed 's|@PREFIX@|$(PREFIX)|' bin/serve/sluice.service.in \
	  > $(D)/lib/systemd/system/sluice.service
	mkdir -p $(D)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@PKGS@|$(PKGS)|' \
	  model/sluice.pc.in > $(D)/lib/pkgconfig/sluice.pc
clean:
	rm -rf $(BUILD)
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
