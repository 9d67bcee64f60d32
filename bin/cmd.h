/* cmd.h - the commands of the program, one file each. argv[0] is the command's
 * name; each returns the exit status: 0 done, 1 failed after a sentence, 2 a
 * wrong command line.
 *
 * Threads  one caller.
 * Errors   printed by the command.
 */
#ifndef BIN_CMD_H
#define BIN_CMD_H

typedef int cmd_fn(int argc, char **argv);
cmd_fn cmd_run;
cmd_fn cmd_batch;
cmd_fn cmd_chat;
cmd_fn cmd_serve;
cmd_fn cmd_tokenize;
cmd_fn cmd_synth;
cmd_fn cmd_compare;
cmd_fn cmd_replay;
cmd_fn cmd_profile;
cmd_fn cmd_plan;
cmd_fn cmd_doctor;
cmd_fn cmd_verify;
cmd_fn cmd_pack;
cmd_fn cmd_spread;

struct cmd {
    const char *name;
    cmd_fn     *run;
    const char *about;
};

#endif
