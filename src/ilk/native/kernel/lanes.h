// Vectors of LANES floats, in the portable notation of GCC and clang.
#pragma once
#include <stdint.h>

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef int64_t vl __attribute__((vector_size(4 * LANES)));  // for pairs of floats
typedef float hf __attribute__((vector_size(2 * LANES)));   // half a vector
typedef int32_t hi __attribute__((vector_size(2 * LANES)));
typedef float qf __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

template <class V = vf>
INLINE V load(const float* from) {
    V v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

template <class V, class T>
INLINE void store(T* to, V v) {
    __builtin_memcpy(to, &v, sizeof v);
}

// The two floats at `from`, repeated over all lanes: one broadcast of 64 bits.
INLINE vf load_pair(const float* from) {
    int64_t pair;
    __builtin_memcpy(&pair, from, sizeof pair);
    return (vf)(vl{} + pair);
}

// The first `count` lanes only: what lies behind them belongs to somebody else.
template <class V, class T>
INLINE void store_first(T* to, V v, int64_t count) {
    T lanes[sizeof(V) / sizeof(T)] __attribute__((aligned(64)));
    __builtin_memcpy(lanes, &v, sizeof v);
    const T* from = lanes;
    if (sizeof v >= 64 && count & 16) { __builtin_memcpy(to, from, 64); return; }
    if (sizeof v >= 32 && count & 8) { __builtin_memcpy(to, from, 32); to += 8; from += 8; }
    if (sizeof v >= 16 && count & 4) { __builtin_memcpy(to, from, 16); to += 4; from += 4; }
    if (count & 2) { __builtin_memcpy(to, from, 8); to += 2; from += 2; }
    if (count & 1) *to = *from;
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define ILK_SHUFFLE 1
#endif
#endif

#ifdef ILK_SHUFFLE
#if LANES == 16
INLINE hf evens(vf v) { return __builtin_shufflevector(v, v, 0, 2, 4, 6, 8, 10, 12, 14); }
INLINE hf odds(vf v) { return __builtin_shufflevector(v, v, 1, 3, 5, 7, 9, 11, 13, 15); }
INLINE hf fold(vf v) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE qf fold(hf v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7); }
INLINE qf four(vf v) { return fold(fold(v)); }
#elif LANES == 8
INLINE hf evens(vf v) { return __builtin_shufflevector(v, v, 0, 2, 4, 6); }
INLINE hf odds(vf v) { return __builtin_shufflevector(v, v, 1, 3, 5, 7); }
INLINE qf four(vf v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7); }
#else
INLINE hf evens(vf v) { return __builtin_shufflevector(v, v, 0, 2); }
INLINE hf odds(vf v) { return __builtin_shufflevector(v, v, 1, 3); }
INLINE qf four(vf v) { return v; }
#endif
// The sums over the lanes of four vectors.
INLINE qf sums(vf a, vf b, vf c, vf d) {
    qf p = four(a), q = four(b), r = four(c), s = four(d);
    qf pq = __builtin_shufflevector(p, q, 0, 4, 1, 5) + __builtin_shufflevector(p, q, 2, 6, 3, 7);
    qf rs = __builtin_shufflevector(r, s, 0, 4, 1, 5) + __builtin_shufflevector(r, s, 2, 6, 3, 7);
    return __builtin_shufflevector(pq, rs, 0, 1, 4, 5) + __builtin_shufflevector(pq, rs, 2, 3, 6, 7);
}
#else  // GCC before 12: the same, lane by lane
INLINE hf evens(vf v) {
    hf h;
    for (int i = 0; i < LANES / 2; ++i) h[i] = v[2 * i];
    return h;
}
INLINE hf odds(vf v) {
    hf h;
    for (int i = 0; i < LANES / 2; ++i) h[i] = v[2 * i + 1];
    return h;
}
INLINE float sum(vf v) {
    float lanes[LANES];
    __builtin_memcpy(lanes, &v, sizeof v);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}
INLINE qf sums(vf a, vf b, vf c, vf d) { return qf{sum(a), sum(b), sum(c), sum(d)}; }
#endif

// Negative becomes 0; NaN stays NaN, as in PyTorch, so that a training that has diverged is seen.
template <class V>
INLINE V rectified(V v) {
    return v < 0 ? V{} : v;
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t parts(int64_t of, int64_t size) { return (of + size - 1) / size; }
INLINE int64_t whole(int64_t of, int64_t size) { return parts(of, size) * size; }
