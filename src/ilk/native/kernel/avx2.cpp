#define ILK_SET avx2
#define ILK_NAME "avx2"
#define LANES 8
#include "kernel.inc"
