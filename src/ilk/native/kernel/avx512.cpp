#define ILK_SET avx512
#define ILK_NAME "avx512"
#define LANES 16
#include "kernel.inc"
