/* Goal    the mount that a path is on is the innermost and the newest one.
 * Method  a mountinfo with a blank in a name, a mount over another, a point
 *         whose name begins like another's, and lines that end early.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bin/doctor/doctor.h"

static const char mounts[] =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "30 27 0:27 / /mnt rw - tmpfs none rw,size=32m\n"
    "31 27 259:1 / /models rw shared:1 master:2 - xfs /dev/nvme0n1p1 rw\n"
    "32 27 7:0 / /models/my\\040disk rw - btrfs /dev/loop0 rw\n"
    "33 30 7:1 / /mnt rw - ext4 /dev/loop1 rw\n"
    "34 30 7:1 / /cut";

static void is(const char *path, const char *type, const char *source)
{
    struct mount_point m;
    assert_int_equal(mount_find(&m, mounts, path), 0);
    assert_string_equal(m.type, type);
    assert_string_equal(m.source, source);
}

static void innermost_mount(void **state)
{
    (void)state;
    is("/home/x", "ext4", "/dev/vda");
    is("/models", "xfs", "/dev/nvme0n1p1");
    is("/models/k3/config.json", "xfs", "/dev/nvme0n1p1");
    is("/models2/k3", "ext4", "/dev/vda");
    is("/models/my disk/k3", "btrfs", "/dev/loop0");
    is("/mnt/k3", "ext4", "/dev/loop1"); /* over the tmpfs */
    is("/cut/k3", "ext4", "/dev/vda");
}

static void no_mount(void **state)
{
    (void)state;
    struct mount_point m;
    assert_int_equal(mount_find(&m, "", "/x"), -1);
    assert_int_equal(mount_find(&m, "garbage\n\n - \n", "/x"), -1);
    assert_int_equal(mount_find(&m, "1 2 3:4 / /y rw - ext4 /d rw\n", "/x"),
                     -1);
}

static void lines_are_counted_and_bounded(void **state)
{
    (void)state;
    static struct doctor d = { .quiet = true };
    for (int i = 0; i < DOCTOR_LINES_MAX + 9; i++)
        doctor_add(&d, i % 3 ? DOCTOR_OK : DOCTOR_FAIL, "name", NULL, "%d", i);
    assert_int_equal(d.lines, DOCTOR_LINES_MAX);
    assert_int_equal(d.count[DOCTOR_OK] + d.count[DOCTOR_FAIL],
                     DOCTOR_LINES_MAX);
    assert_string_equal(d.line[7].text, "7");
    assert_string_equal(d.line[7].fix, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(innermost_mount),
        cmocka_unit_test(no_mount),
        cmocka_unit_test(lines_are_counted_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
