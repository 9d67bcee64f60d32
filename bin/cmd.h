/* cmd.h - the commands of the program, one file each. argv[0] is the command's
 * name; each returns the exit status: 0 done, 1 failed, 2 usage. */
#ifndef BIN_CMD_H
#define BIN_CMD_H

typedef int cmd_fn(int argc, char **argv);
cmd_fn cmd_run;
cmd_fn cmd_batch;
cmd_fn cmd_tokenize;
cmd_fn cmd_synth;
cmd_fn cmd_replay;
cmd_fn cmd_profile;
cmd_fn cmd_plan;
cmd_fn cmd_doctor;
cmd_fn cmd_verify;

struct cmd {
    const char *name;
    cmd_fn     *run;
    const char *about;
};

#define SLUICE_VERSION "0.1.0"

#endif
