// The way back through a convolution touches only what the way forward chose: of every four positions the pooled maximum, and
// of these only those that passed ReLU. They are listed channel by channel, and each adds its patch to the weights' gradient,
// and its weights to the input's gradient, with a block of the patch in registers.
#pragma once

struct Entry {
    float gradient;
    int32_t offset;  // of what it is a factor of: of the patch, from the first listed sample's input
};

// A block of a patch: ROWS rows of COLUMNS vectors, over all entries.
template <class V, int ROWS, int COLUMNS>
static void to_weights(const Entry* entries, int64_t count, const float* x, const int32_t* offsets, float* gradient, int64_t padded,
                       int64_t length) {
    constexpr int64_t N = sizeof(V) / 4;
    V sum[ROWS][COLUMNS];
    const float* from[ROWS];
    for (int r = 0; r < ROWS; ++r) {
        from[r] = x + offsets[r];
        for (int k = 0; k < COLUMNS; ++k) sum[r][k] = V{};
    }
    for (int64_t e = 0; e < count; ++e) {
        float g = entries[e].gradient;
        int64_t offset = entries[e].offset;
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int k = 0; k < COLUMNS; ++k) sum[r][k] += g * load<V>(from[r] + offset + k * N);
    }
    for (int r = 0; r < ROWS; ++r)
        for (int k = 0; k < COLUMNS; ++k) {
            int64_t valid = least(length - k * N, N);  // behind a row's end lie its neighbour's values
            float* to = gradient + r * padded + k * N;
            V total = load<V>(to) + sum[r][k];
            if (valid >= N) store(to, total);
            else store_first(to, total, valid);
        }
}

template <class V, int ROWS, int COLUMNS>
static void to_input(const Entry* entries, int64_t count, const float* weights, const int32_t* offsets, float* gradient,
                     int64_t padded, int64_t) {
    constexpr int64_t N = sizeof(V) / 4;
    V weight[ROWS][COLUMNS];
    float* to[ROWS];
    for (int r = 0; r < ROWS; ++r) {
        to[r] = gradient + offsets[r];
        for (int k = 0; k < COLUMNS; ++k) weight[r][k] = load<V>(weights + r * padded + k * N);
    }
    for (int64_t e = 0; e < count; ++e) {
        float g = entries[e].gradient;
        int64_t offset = entries[e].offset;
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
            for (int k = 0; k < COLUMNS; ++k) {
                float* at = to[r] + offset + k * N;
                store(at, load<V>(at) + g * weight[r][k]);  // behind a row's end the weights are zero
            }
    }
}

// The first pointer is read, the second written: input and weights' gradient, or weights and input's gradient.
using ToWeights = void (*)(const Entry*, int64_t, const float*, const int32_t*, float*, int64_t, int64_t);
constexpr int ROWS_OF[] = {8, 5, 4, 3};  // most rows in a block of 1, 2, 3, 4 vectors a row

#define ILK_BLOCKS(pass, V)                                                                                              \
    {{pass<V, 1, 1>, pass<V, 2, 1>, pass<V, 3, 1>, pass<V, 4, 1>, pass<V, 5, 1>, pass<V, 6, 1>, pass<V, 7, 1>, pass<V, 8, 1>}, \
     {pass<V, 1, 2>, pass<V, 2, 2>, pass<V, 3, 2>, pass<V, 4, 2>, pass<V, 5, 2>},                                          \
     {pass<V, 1, 3>, pass<V, 2, 3>, pass<V, 3, 3>, pass<V, 4, 3>},                                                         \
     {pass<V, 1, 4>, pass<V, 2, 4>, pass<V, 3, 4>}}
static const ToWeights WHOLE_WEIGHTS[4][8] = ILK_BLOCKS(to_weights, vf), WHOLE_INPUT[4][8] = ILK_BLOCKS(to_input, vf);
#if LANES == 16
static const ToWeights HALF_WEIGHTS[4][8] = ILK_BLOCKS(to_weights, hf), HALF_INPUT[4][8] = ILK_BLOCKS(to_input, hf);
#else
#define HALF_WEIGHTS WHOLE_WEIGHTS
#define HALF_INPUT WHOLE_INPUT
#endif

// Cut a channel's patch into blocks that fit the registers, and let every block go through the entries.
template <class Each>
INLINE void every_block(const Place& place, Each each) {
    int64_t lanes = half_or_whole(place.length), vectors = parts(place.length, lanes);
    for (int64_t n = parts(vectors, 4), column = 0; n; --n) {
        int64_t wide = parts(vectors - column, n);
        for (int64_t m = parts(place.rows, ROWS_OF[wide - 1]), row = 0; m; --m) {
            int64_t high = parts(place.rows - row, m);
            each(wide - 1, high - 1, row, column * lanes);
            row += high;
        }
        column += wide;
    }
}

struct Outputs {  // of a convolution, and their gradient: where the next layer has its input
    const float* values;
    float* gradient;
    int64_t stride, down;
};

// Where an output was held back by ReLU nothing passes.
INLINE void rectify_gradient(const float* values, float* gradient, int64_t floats) {
    int64_t i = 0;
    for (; i + LANES <= floats; i += LANES) store(gradient + i, load(values + i) <= 0 ? vf{} : load(gradient + i));
    for (; i < floats; ++i) gradient[i] = values[i] <= 0 ? 0 : gradient[i];
}

// Hold back, and add up what passes: the gradient of the bias.
static void rectify_outputs(const Layer& layer, const Place& place, const Outputs& out, int64_t batch, float* bias) {
    for (int64_t b = 0; b < batch; ++b)
        for (int64_t y = 0; y < place.out_height; ++y) {
            int64_t row = b * out.stride + y * out.down, floats = place.out_width * layer.outputs;
            float* gradient = out.gradient + row;
            if (layer.relu) rectify_gradient(out.values + row, gradient, floats);
            for (int64_t first = 0; first < layer.outputs; first += LANES) {
                vf sum{};
                for (int64_t i = first; i < floats; i += layer.outputs) sum += load(gradient + i);
                store_first(bias + first, load(bias + first) + sum, least(LANES, layer.outputs - first));
            }
        }
}

// List what `channel` passes back from samples `first` to `end`. Where entries are added to the input's gradient neighbours
// in the list are of different samples: one that overlaps the one before would have to wait for it.
static int64_t list_entries(const Layer& layer, const Place& place, const Outputs& out, const int32_t* maxima, int64_t channel,
                            int64_t first, int64_t end, bool mixed, Entry* entries) {
    int64_t count = 0, wide = place.out_width, channels = layer.outputs;
    auto one = [&](int64_t b, int64_t y, int64_t x) {
        float g = out.gradient[b * out.stride + y * out.down + x * channels + channel];
        int64_t patch = maxima ? maxima[b * place.maxima_stride + (y * wide + x) * channels + channel]
                               : y * place.down + x * place.across;
        entries[count] = {g, (int32_t)(patch + (b - first) * place.stride)};
        count += g != 0;
    };
    if (mixed) {
        for (int64_t y = 0; y < place.out_height; ++y)
            for (int64_t x = 0; x < wide; ++x)
                for (int64_t b = first; b < end; ++b) one(b, y, x);
    } else {
        for (int64_t b = first; b < end; ++b)
            for (int64_t y = 0; y < place.out_height; ++y)
                for (int64_t x = 0; x < wide; ++x) one(b, y, x);
    }
    return count;
}

// Add to the layer's gradient (packed, zeros before), and to its input's where `input_gradient` is given (zeros before).
static void convolve_back(const Layer& layer, const Place& place, const Outputs& out, const float* theta, const float* workspace,
                          Entry* entries, int64_t batch, float* gradient, float* bias_gradient, float* input_gradient) {
    const int32_t* offsets = (const int32_t*)(workspace + place.offsets);
    const int32_t* maxima = layer.pool ? (const int32_t*)(workspace + place.maxima) : nullptr;
    bool half = half_or_whole(place.length) != LANES;
    const ToWeights(*weights)[8] = half ? HALF_WEIGHTS : WHOLE_WEIGHTS;
    const ToWeights(*input)[8] = half ? HALF_INPUT : WHOLE_INPUT;
    rectify_outputs(layer, place, out, batch, bias_gradient);
    for (int64_t first = 0; first < batch; first += 16) {  // as many samples as the cache may hold
        const float* x = workspace + place.input + first * place.stride;
        float* back = input_gradient ? input_gradient + first * place.stride : nullptr;
        for (int64_t c = 0; c < layer.outputs; ++c) {
            int64_t end = least(first + 16, batch), patch = c * place.rows * place.padded;
            int64_t count =
                list_entries(layer, place, out, maxima, c, first, end, back != nullptr, entries);
            every_block(place, [&](int64_t wide, int64_t high, int64_t row, int64_t column) {
                int64_t at = patch + row * place.padded + column;
                weights[wide][high](entries, count, x + column, offsets + row, gradient + at, place.padded, place.length - column);
                if (back)
                    input[wide][high](entries, count, theta + place.theta + at, offsets + row, back + column, place.padded, 0);
            });
        }
    }
}
