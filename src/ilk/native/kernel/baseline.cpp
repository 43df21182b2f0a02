#define ILK_SET baseline
#define ILK_NAME "baseline"
#define LANES 4
#include "kernel.inc"
