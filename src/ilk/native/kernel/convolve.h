// A convolution, its bias, ReLU and 2x2 max-pooling in one pass: output channels in the lanes, positions in registers.
//
// Where at most half of the lanes have a channel, and neighbouring columns lie side by side, every lane pair holds one channel
// at two columns ("paired"). For every pooled output the offset of the winning patch is kept for the way back.
#pragma once

struct Convolution {
    const float* weights;    // rows * length vectors of one block of channels
    const int32_t* offsets;  // of a patch's rows
    vf bias;
    int64_t rows, length, across, down;
    int64_t channels;        // of this block
    int64_t all_channels;    // from one output to the next
    bool relu;
};

// Accumulate U columns of the rows given (one, or two for pooling). Taps are added in the order of the patch, everywhere.
template <int ROWS, int COLUMNS, bool PAIRED>
INLINE void accumulate(const Convolution& c, const float* x, vf (&sum)[ROWS][COLUMNS]) {
    const int64_t across = PAIRED ? 2 : c.across;
    const float* weight = c.weights;
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < COLUMNS; ++j) sum[i][j] = c.bias;
    for (int64_t r = 0; r < c.rows; ++r) {
        const float* top = x + c.offsets[r];
        for (int64_t t = 0; t < c.length; ++t, ++top, weight += LANES) {
            vf w = load(weight);
#pragma GCC unroll 16
            for (int j = 0; j < COLUMNS; ++j)
#pragma GCC unroll 2
                for (int i = 0; i < ROWS; ++i) {
                    const float* at = top + i * c.down + j * across;
                    if (PAIRED) sum[i][j] += w * load_pair(at);
                    else sum[i][j] += w * *at;
                }
        }
    }
}

// Keep the later value where it is greater, or no number: so the first of equal ones wins, as in PyTorch.
template <class F, class I>
INLINE void challenge(F& best, I& where, F other, int64_t offset) {
    I wins = (other > best) | (other != other);
    best = wins ? other : best;
    where = wins ? I{} + (int32_t)offset : where;
}

template <class F, class I>
INLINE void deliver(const Convolution& c, F value, I where, float* out, int32_t* maxima, bool loose) {
    if (c.relu) value = rectified(value);
    if (loose) {  // lanes without a channel may spill into an output that is yet to come
        store(out, value);
        if (maxima) store(maxima, where);
    } else {
        store_first(out, value, c.channels);
        if (maxima) store_first(maxima, where, c.channels);
    }
}

// U pooled outputs side by side; the first `loose` may spill to the right.
template <int U, bool PAIRED>
static void pooled(const Convolution& c, const float* x, int64_t offset, float* out, int32_t* maxima, int64_t loose) {
    constexpr int COLUMNS = PAIRED ? U : 2 * U;
    vf sum[2][COLUMNS];
    accumulate<2, COLUMNS, PAIRED>(c, x, sum);
    for (int u = 0; u < U; ++u) {
        int64_t at = offset + 2 * u * c.across;
        float* to = out + u * c.all_channels;
        int32_t* winner = maxima ? maxima + u * c.all_channels : maxima;
        if (PAIRED) {
            hf best = evens(sum[0][u]);
            hi where = hi{} + (int32_t)at;
            challenge(best, where, odds(sum[0][u]), at + c.across);
            challenge(best, where, evens(sum[1][u]), at + c.down);
            challenge(best, where, odds(sum[1][u]), at + c.down + c.across);
            deliver(c, best, where, to, winner, u < loose);
        } else {
            vf best = sum[0][COLUMNS > 1 ? 2 * u : 0];
            vi where = vi{} + (int32_t)at;
            challenge(best, where, sum[0][COLUMNS > 1 ? 2 * u + 1 : 0], at + c.across);
            challenge(best, where, sum[1][COLUMNS > 1 ? 2 * u : 0], at + c.down);
            challenge(best, where, sum[1][COLUMNS > 1 ? 2 * u + 1 : 0], at + c.down + c.across);
            deliver(c, best, where, to, winner, u < loose);
        }
    }
}

// U outputs side by side without pooling (a number of columns that is even where they are paired).
template <int U>
static void plain(const Convolution& c, const float* x, int64_t, float* out, int32_t*, int64_t loose) {
    vf sum[1][U];
    accumulate<1, U, false>(c, x, sum);
    for (int u = 0; u < U; ++u) deliver(c, sum[0][u], vi{}, out + u * c.all_channels, nullptr, u < loose);
}

using Tile = void (*)(const Convolution&, const float*, int64_t, float*, int32_t*, int64_t);
constexpr int MOST_POOLED = LANES == 16 ? 5 : 3, MOST_PAIRED = LANES == 16 ? 8 : 6, MOST_PLAIN = LANES == 16 ? 16 : 8;
static const Tile POOLED[] = {pooled<1, false>, pooled<2, false>, pooled<3, false>, pooled<4, false>, pooled<5, false>};
static const Tile PAIRED[] = {pooled<1, true>, pooled<2, true>, pooled<3, true>, pooled<4, true>,
                              pooled<5, true>, pooled<6, true>, pooled<7, true>, pooled<8, true>};
static const Tile PLAIN[] = {plain<1>,  plain<2>,  plain<3>,  plain<4>,  plain<5>,  plain<6>,  plain<7>,  plain<8>,
                             plain<9>,  plain<10>, plain<11>, plain<12>, plain<13>, plain<14>, plain<15>, plain<16>};

// The weights as the forward pass wants them: for every block of channels a vector for each tap.
static void turn_weights(const Layer& layer, const Place& place, const float* theta, float* turned) {
    for (int64_t first = 0; first < layer.outputs; first += LANES) {
        int64_t channels = least(LANES, layer.outputs - first);
        bool paired = layer.pool && place.across == 1 && channels <= LANES / 2;
        for (int64_t c = 0; c < channels; ++c) {
            const float* from = theta + place.theta + (first + c) * place.rows * place.padded;
            float* to = turned + first * place.rows * place.length + (paired ? 2 * c : c);
            for (int64_t r = 0; r < place.rows; ++r, from += place.padded)
                for (int64_t t = 0; t < place.length; ++t, to += LANES) {
                    to[0] = from[t];
                    if (paired) to[1] = from[t];
                }
        }
    }
}

// One sample; `out` and `maxima` are where its outputs go, `out_down` is from one output row to the next.
static void convolve(const Layer& layer, const Place& place, const float* theta, const float* workspace, const float* x,
                     float* out, int64_t out_down, int32_t* maxima) {
    Convolution c = {};
    c.offsets = (const int32_t*)(workspace + place.offsets);
    c.rows = place.rows, c.length = place.length, c.across = place.across, c.down = place.down;
    c.all_channels = layer.outputs, c.relu = layer.relu;
    int64_t step = layer.pool ? 2 : 1, covered = parts(LANES, layer.outputs);
    for (int64_t first = 0; first < layer.outputs; first += LANES) {
        c.channels = least(LANES, layer.outputs - first);
        c.weights = workspace + place.forward + first * place.rows * place.length;
        bool paired = layer.pool && place.across == 1 && c.channels <= LANES / 2;
        for (int i = 0; i < LANES; ++i) {
            int64_t channel = paired ? i / 2 : i;
            c.bias[i] = channel < c.channels ? theta[place.bias + first + channel] : 0.0f;
        }
        bool alone = layer.outputs <= LANES || c.channels == LANES;  // nobody has written to the right yet
        const Tile* tiles = !layer.pool ? PLAIN : paired ? PAIRED : POOLED;
        int64_t most = !layer.pool ? MOST_PLAIN : paired ? MOST_PAIRED : MOST_POOLED;
        int64_t count = parts(place.out_width, most);
        for (int64_t y = 0; y < place.out_height; ++y)
            for (int64_t n = 0, column = 0; n < count; ++n) {
                int64_t wide = parts(place.out_width - column, count - n);
                int64_t offset = y * step * place.down + column * step * place.across;
                int64_t loose = c.channels == LANES ? wide : alone ? place.out_width - covered + 1 - column : 0;
                int64_t at = column * layer.outputs + first;
                tiles[wide - 1](c, x + offset, offset, out + y * out_down + at,
                                maxima ? maxima + y * place.out_width * layer.outputs + at : nullptr, loose);
                column += wide;
            }
    }
}
