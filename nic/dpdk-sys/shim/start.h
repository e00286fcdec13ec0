#ifndef SIDELANE_START_H
#define SIDELANE_START_H

/* As rte_eal_init, but prints nothing and makes no folder. */
int start_eal(int argc, char **argv);

#endif
