/* Goal    a file is replaced whole or not at all, and nothing else changes.
 * Method  a folder of its own; after every step its list of names and the bytes
 *         of each are compared with what they must be: commit, abort, a process
 *         that ends in the middle, links to a file and to none, a loop of
 *         links, a device, a missing folder; with a nameless file aside and
 *         with a named one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/replace.h"

static char dir[64];
static const int ways[] = { 0, REPLACE_NAMED };

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/sluice-replace-XXXXXX");
    return mkdtemp(dir) ? chdir(dir) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return chdir("/") || system(command);
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void expect(const char *path, const char *text)
{
    char got[256] = { 0 };
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, got, sizeof got - 1) >= 0);
    close(fd);
    assert_string_equal(got, text);
}

static int names(void)
{
    int n = 0;
    DIR *d = opendir(".");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void write_text(struct replace *r, const char *text)
{
    assert_int_equal(write(r->fd, text, strlen(text)), strlen(text));
}

static void until_the_commit_nothing_changes(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct replace r;
        struct stat st;
        put("a", "old");
        assert_int_equal(replace_open(&r, "a", ways[i]), 0);
        assert_false(r.in_place);
        assert_int_equal(names(), 1 + i);
        write_text(&r, "new bytes");
        expect("a", "old");
        assert_int_equal(replace_commit(&r, true), 0);
        expect("a", "new bytes");
        assert_int_equal(stat("a", &st), 0);
        assert_int_equal(st.st_mode & 0777, 0640);
        assert_int_equal(names(), 1);
        assert_int_equal(replace_open(&r, "b", ways[i]), 0);
        write_text(&r, "first");
        assert_int_equal(replace_commit(&r, false), 0);
        expect("b", "first");
        assert_int_equal(names(), 2);
        assert_int_equal(unlink("b"), 0);
    }
}

static void an_abort_or_a_death_leaves_the_old(void **state)
{
    (void)state;
    struct replace r;
    for (int i = 0; i < 2; i++) {
        put("a", "old");
        assert_int_equal(replace_open(&r, "a", ways[i]), 0);
        write_text(&r, "new");
        replace_abort(&r);
        expect("a", "old");
        assert_int_equal(names(), 1);
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (replace_open(&r, "a", 0) || write(r.fd, "new", 3) != 3)
            _exit(3);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect("a", "old");
    assert_int_equal(names(), 1);
}

static void links_stay_and_lead(void **state)
{
    (void)state;
    struct replace r;
    struct stat st;
    assert_int_equal(mkdir("real", 0777), 0);
    put("real/a", "old");
    assert_int_equal(symlink("real/a", "link"), 0);
    assert_int_equal(symlink("link", "second"), 0);
    assert_int_equal(symlink("real/none", "dangling"), 0);
    assert_int_equal(replace_open(&r, "second", 0), 0);
    write_text(&r, "new");
    assert_int_equal(replace_commit(&r, false), 0);
    expect("real/a", "new");
    assert_int_equal(lstat("second", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(replace_open(&r, "dangling", 0), 0);
    write_text(&r, "made");
    assert_int_equal(replace_commit(&r, false), 0);
    expect("real/none", "made");
    assert_int_equal(lstat("dangling", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(symlink("loop", "loop"), 0);
    assert_int_equal(replace_open(&r, "loop", 0), -ELOOP);
    assert_int_equal(r.fd, -1);
}

static void a_device_is_written_in_place(void **state)
{
    (void)state;
    struct replace r;
    assert_int_equal(replace_open(&r, "/dev/null", 0), 0);
    assert_true(r.in_place);
    write_text(&r, "gone");
    assert_int_equal(replace_commit(&r, true), 0);
    struct stat st;
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(replace_open(&r, dir, 0), -EISDIR);
    assert_int_equal(replace_open(&r, "no/folder", 0), -ENOENT);
    assert_int_equal(names(), 0);
}

static void a_file_without_a_name_is_written_in_place(void **state)
{
    (void)state;
    char path[32], got[8] = { 0 };
    for (int i = 0; i < 2; i++) {
        struct replace r;
        put("gone", "old old old");
        int fd = open("gone", O_RDWR);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (fd < 0 || access(path, F_OK))
            skip();
        unlink("gone");
        assert_int_equal(replace_open(&r, path, ways[i]), 0);
        assert_true(r.in_place);
        write_text(&r, "new");
        assert_int_equal(replace_commit(&r, false), 0);
        assert_int_equal(pread(fd, got, sizeof got, 0), 3);
        assert_string_equal(got, "new");
        close(fd);
        assert_int_equal(names(), 0);
    }
}

static void a_name_of_full_length(void **state)
{
    (void)state;
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    for (int i = 0; i < 2; i++) {
        struct replace r;
        assert_int_equal(replace_open(&r, name, ways[i]), 0);
        write_text(&r, "whole");
        assert_int_equal(replace_commit(&r, false), 0);
        expect(name, "whole");
        unlink(name);
    }
    assert_int_equal(names(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_file_without_a_name_is_written_in_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_name_of_full_length, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(until_the_commit_nothing_changes,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_abort_or_a_death_leaves_the_old,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_stay_and_lead, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_device_is_written_in_place, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
