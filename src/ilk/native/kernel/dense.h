// Dense layers. The first one has a row of weights for each input, and skips inputs that are zero; any other has a row for
// each output, so that its way back is a sum of rows. The optimiser's step is made while a gradient is in registers.
#pragma once

constexpr int SAMPLES = LANES == 16 ? 5 : 3;  // samples in a tile of sums

struct Dense {
    const float* theta;  // rows of `padded`
    const float* bias;
    int64_t rows, padded;
    bool relu;
};

// outputs[b] += sum of the rows of the inputs that are not zero, for U vectors of outputs.
template <int U>
static void sum_rows(const Entry* entries, int64_t count, const float* rows, const float* bias, float* out, bool relu) {
    vf sum[U];
    for (int u = 0; u < U; ++u) sum[u] = load(bias + u * LANES);
    for (int64_t e = 0; e < count; ++e) {
        float x = entries[e].gradient;
        const float* row = rows + entries[e].offset;
        for (int u = 0; u < U; ++u) sum[u] += x * load(row + u * LANES);
    }
    for (int u = 0; u < U; ++u) store(out + u * LANES, relu ? rectified(sum[u]) : sum[u]);
}

static void first_dense(const Dense& d, const float* x, int64_t stride, int64_t batch, Entry* entries, float* out, int64_t out_stride) {
    for (int64_t b = 0; b < batch; ++b) {
        int64_t count = 0;
        for (int64_t i = 0; i < d.rows; ++i) {
            entries[count] = {x[b * stride + i], (int32_t)(i * d.padded)};
            count += x[b * stride + i] != 0;
        }
        float* to = out + b * out_stride;
        int64_t o = 0;
        for (; o + 8 * LANES <= d.padded; o += 8 * LANES) sum_rows<8>(entries, count, d.theta + o, d.bias + o, to + o, d.relu);
        for (; o + 4 * LANES <= d.padded; o += 4 * LANES) sum_rows<4>(entries, count, d.theta + o, d.bias + o, to + o, d.relu);
        for (; o < d.padded; o += LANES) sum_rows<1>(entries, count, d.theta + o, d.bias + o, to + o, d.relu);
    }
}

// Four outputs of B samples.
template <int B>
static void products(const float* x, int64_t stride, const float* w, int64_t padded, const float* bias, bool relu, float* out,
                     int64_t out_stride) {
    vf sum[B][4];
    for (int b = 0; b < B; ++b)
        for (int o = 0; o < 4; ++o) sum[b][o] = vf{};
    for (int64_t i = 0; i < padded; i += LANES) {
        vf row[4];
        for (int o = 0; o < 4; ++o) row[o] = load(w + o * padded + i);
#pragma GCC unroll 8
        for (int b = 0; b < B; ++b) {
            vf value = load(x + b * stride + i);
            for (int o = 0; o < 4; ++o) sum[b][o] += value * row[o];
        }
    }
    for (int b = 0; b < B; ++b) {
        qf total = sums(sum[b][0], sum[b][1], sum[b][2], sum[b][3]) + load<qf>(bias);
        store(out + b * out_stride, relu ? rectified(total) : total);
    }
}

using Products = void (*)(const float*, int64_t, const float*, int64_t, const float*, bool, float*, int64_t);
static const Products PRODUCTS[] = {products<1>, products<2>, products<3>, products<4>, products<5>};

static void dense(const Dense& d, const float* x, int64_t stride, int64_t batch, float* out, int64_t out_stride) {
    for (int64_t n = parts(batch, SAMPLES), b = 0; n; --n) {
        int64_t samples = parts(batch - b, n);
        for (int64_t o = 0; o < d.rows; o += 4)  // there are rows of zeros up to a multiple of four
            PRODUCTS[samples - 1](x + b * stride, stride, d.theta + o * d.padded, d.padded, d.bias + o, d.relu,
                                  out + b * out_stride + o, out_stride);
        b += samples;
    }
}

// The gradient of the inputs of B samples, U vectors of it.
template <int B, int U>
static void input_tile(const float* g, int64_t g_stride, const float* w, int64_t rows, int64_t padded, float* out, int64_t stride) {
    vf sum[B][U];
    for (int b = 0; b < B; ++b)
        for (int u = 0; u < U; ++u) sum[b][u] = vf{};
    for (int64_t o = 0; o < rows; ++o, w += padded) {
        vf row[U];
        for (int u = 0; u < U; ++u) row[u] = load(w + u * LANES);
#pragma GCC unroll 8
        for (int b = 0; b < B; ++b) {
            float value = g[b * g_stride + o];
            for (int u = 0; u < U; ++u) sum[b][u] += value * row[u];
        }
    }
    for (int b = 0; b < B; ++b)
        for (int u = 0; u < U; ++u) store(out + b * stride + u * LANES, sum[b][u]);
}

using InputTile = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*, int64_t);
static const InputTile FOUR[] = {input_tile<1, 4>, input_tile<2, 4>, input_tile<3, 4>, input_tile<4, 4>, input_tile<5, 4>};
static const InputTile ONE[] = {input_tile<1, 1>, input_tile<2, 1>, input_tile<3, 1>, input_tile<4, 1>, input_tile<5, 1>};

static void dense_to_input(const Dense& d, const float* g, int64_t g_stride, int64_t batch, float* out, int64_t stride) {
    int64_t i = 0;
    for (int64_t tile = 4 * LANES; i < d.padded; i += tile) {
        if (i + tile > d.padded) tile = LANES;
        for (int64_t n = parts(batch, SAMPLES), b = 0; n; --n) {
            int64_t samples = parts(batch - b, n);
            (tile == LANES ? ONE : FOUR)[samples - 1](g + b * g_stride, g_stride, d.theta + i, d.rows, d.padded, out + b * stride + i,
                                                      stride);
            b += samples;
        }
    }
}

// One row of weights: its gradient is a sum of vectors, one for each entry; then the step.
template <int U>
INLINE void step_row(const Entry* entries, int64_t count, const float* vectors, const Update& u, int64_t at) {
    vf sum[U];
    for (int k = 0; k < U; ++k) sum[k] = vf{};
    for (int64_t e = 0; e < count; ++e) {
        float g = entries[e].gradient;
        const float* vector = vectors + entries[e].offset;
        for (int k = 0; k < U; ++k) sum[k] += g * load(vector + k * LANES);
    }
    for (int k = 0; k < U; ++k) update(u, at + k * LANES, sum[k]);
}

// Row r's gradient is the sum over samples of factors[b][r] times vectors[b]: of an output its gradient times the inputs, or
// in the first layer of an input its value times the outputs' gradients.
static void dense_step(int64_t rows, int64_t padded, const float* factors, int64_t factors_stride, const float* vectors,
                       int64_t vectors_stride, int64_t batch, Entry* entries, const Update& u, int64_t at) {
    for (int64_t r = 0; r < rows; ++r, at += padded) {
        int64_t count = 0;
        for (int64_t b = 0; b < batch; ++b) {
            entries[count] = {factors[b * factors_stride + r], (int32_t)(b * vectors_stride)};
            count += factors[b * factors_stride + r] != 0;
        }
        int64_t i = 0;
        for (; i + 8 * LANES <= padded; i += 8 * LANES) step_row<8>(entries, count, vectors + i, u, at + i);
        for (; i + 4 * LANES <= padded; i += 4 * LANES) step_row<4>(entries, count, vectors + i, u, at + i);
        for (; i < padded; i += LANES) step_row<1>(entries, count, vectors + i, u, at + i);
    }
}

static void bias_step(const float* g, int64_t stride, int64_t batch, int64_t outputs, const Update& u, int64_t at) {
    for (int64_t o = 0; o < outputs; o += LANES) {
        vf sum{};
        for (int64_t b = 0; b < batch; ++b) sum += load(g + b * stride + o);
        update(u, at + o, sum);
    }
}
