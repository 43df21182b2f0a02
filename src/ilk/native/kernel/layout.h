// Where everything lies. For the length of a fit parameters are kept packed, in the order in which the passes want them.
//
// An image that comes in is stored as it was given, planes of rows; between layers a pixel's channels lie together. Either
// way a patch of a convolution is a few rows of contiguous values, and a packed weight has the patch's order, each row filled
// up with zeros to whole vectors. A dense layer that is the first has a row for each input; any other one for each output.
#pragma once

constexpr int64_t SLACK = 64;  // floats after a buffer that a vector may reach into

INLINE bool convolution(const Layer& layer) { return layer.convolution; }
INLINE int64_t inputs(const Layer& layer) { return layer.channels * layer.height * layer.width; }
INLINE int64_t half_or_whole(int64_t length) { return LANES == 16 && length <= 8 ? 8 : LANES; }

static Sizes lay_out(const Layer* layers, int64_t count, int64_t batch, bool training, Place* places) {
    Sizes sizes = {};
    int64_t free = 0, theta = 0, longest = 0;
    auto take = [&free](int64_t floats) {
        int64_t at = free;
        free += whole(floats + SLACK, 16);
        return at;
    };
    for (int64_t l = 0; l < count; ++l) {
        const Layer& layer = layers[l];
        Place& place = places[l];
        place = {};
        if (convolution(layer)) {
            int64_t height = layer.height + 2 * layer.pad_height, width = layer.width + 2 * layer.pad_width;
            bool planes = l == 0;
            place.height = height, place.width = width, place.channels = layer.channels;
            place.across = planes ? 1 : layer.channels;
            place.down = width * place.across;
            place.inside = layer.pad_height * place.down + layer.pad_width * place.across;
            place.stride = whole(height * width * layer.channels, 16);
            place.rows = planes ? layer.channels * layer.kernel_height : layer.kernel_height;
            place.length = planes ? layer.kernel_width : layer.kernel_width * layer.channels;
            place.padded = whole(place.length, half_or_whole(place.length));
            place.out_height = (height - layer.kernel_height + 1) / (layer.pool ? 2 : 1);
            place.out_width = (width - layer.kernel_width + 1) / (layer.pool ? 2 : 1);
            place.offsets = take(place.rows);
            place.forward = take(place.rows * place.length * whole(layer.outputs, LANES));
            int64_t values = place.out_height * place.out_width * layer.outputs;
            place.maxima_stride = whole(values + LANES, 16);
            place.maxima = training && layer.pool ? take(batch * place.maxima_stride) : 0;
            longest = longest > batch * place.out_height * place.out_width ? longest : batch * place.out_height * place.out_width;
            place.theta = theta;
            theta += whole(layer.outputs * place.rows * place.padded, 16);
        } else {
            place.height = place.width = place.out_height = place.out_width = 1;
            place.channels = inputs(layer);
            place.stride = whole(inputs(layer), LANES);
            place.theta = theta;
            if (l == 0) place.rows = inputs(layer), place.length = layer.outputs, place.padded = whole(layer.outputs, LANES);
            else place.rows = layer.outputs, place.length = inputs(layer), place.padded = place.stride;
            theta += whole(whole(place.rows, 4) * place.padded, 16);
            longest = longest > batch + inputs(layer) ? longest : batch + inputs(layer);
        }
        place.bias = theta;
        theta += whole(layer.outputs, 16);
        place.input = take(batch * place.stride);
        place.gradient = training && l ? take(batch * place.stride) : 0;
    }
    sizes.classes = layers[count - 1].outputs;
    sizes.logits_stride = whole(sizes.classes, LANES);
    sizes.logits = take(batch * sizes.logits_stride);
    sizes.logits_gradient = training ? take(batch * sizes.logits_stride) : 0;
    sizes.entries = take(2 * longest);
    sizes.parameters = theta;
    sizes.workspace = free;
    return sizes;
}

// Call `each(packed, model)` with where every parameter lies in both vectors.
template <class Each>
static void every_parameter(const Layer* layers, const Place* places, int64_t count, Each each) {
    for (int64_t l = 0; l < count; ++l) {
        const Layer& layer = layers[l];
        const Place& place = places[l];
        int64_t channels = layer.channels, height = layer.height, width = layer.width;
        if (convolution(layer)) {
            int64_t from = layer.weight;
            for (int64_t o = 0; o < layer.outputs; ++o)
                for (int64_t c = 0; c < channels; ++c)
                    for (int64_t y = 0; y < layer.kernel_height; ++y)
                        for (int64_t x = 0; x < layer.kernel_width; ++x, ++from) {
                            int64_t row = l ? y : c * layer.kernel_height + y, in_row = l ? x * channels + c : x;
                            each(place.theta + (o * place.rows + row) * place.padded + in_row, from);
                        }
        } else if (l == 0) {
            for (int64_t rows = 0; rows < place.rows; rows += 16)  // turned in squares, for the cache's sake
                for (int64_t columns = 0; columns < layer.outputs; columns += 16)
                    for (int64_t o = columns; o < least(columns + 16, layer.outputs); ++o)
                        for (int64_t i = rows; i < least(rows + 16, place.rows); ++i)
                            each(place.theta + i * place.padded + o, layer.weight + o * place.rows + i);
        } else {
            for (int64_t o = 0; o < layer.outputs; ++o) {
                int64_t from = layer.weight + o * place.length, row = place.theta + o * place.padded;
                for (int64_t c = 0; c < channels; ++c)
                    for (int64_t at = 0; at < height * width; ++at) each(row + at * channels + c, from++);
            }
        }
        if (layer.bias >= 0)
            for (int64_t o = 0; o < layer.outputs; ++o) each(place.bias + o, layer.bias + o);
    }
}

static void pack(const Layer* layers, const Place* places, int64_t count, const float* model, float* packed) {
    every_parameter(layers, places, count, [=](int64_t to, int64_t from) { packed[to] = model[from]; });
}

static void unpack(const Layer* layers, const Place* places, int64_t count, const float* packed, float* model) {
    every_parameter(layers, places, count, [=](int64_t from, int64_t to) { model[to] = packed[from]; });
}

// What does not change between batches: where the rows of a patch begin.
static void write_offsets(const Layer* layers, const Place* places, int64_t count, float* workspace) {
    for (int64_t l = 0; l < count; ++l) {
        const Place& place = places[l];
        if (!convolution(layers[l])) continue;
        int32_t* offsets = (int32_t*)(workspace + place.offsets);
        for (int64_t r = 0; r < place.rows; ++r) {
            int64_t plane = l ? 0 : r / layers[l].kernel_height, y = l ? r : r % layers[l].kernel_height;
            offsets[r] = (int32_t)(plane * place.height * place.width + y * place.down);
        }
    }
}
