// What the binding and the kernels share: plain structs. One kernel is compiled for each instruction set.
//
// Nothing that is defined here or in the kernels may come from a C++ standard header: an inline function of such a header,
// compiled with AVX-512 in one file, could be the copy that the linker keeps for all.
#pragma once
#include <stdint.h>

namespace ilk {

// A layer as Python tells it, a row of 64-bit integers. `native/plan.py` writes the same order.
struct Layer {
    int64_t convolution;               // 1, or 0 for a dense layer
    int64_t channels, height, width;   // of what comes in; a dense layer takes channels * height * width values
    int64_t outputs;                   // channels or units that go out
    int64_t kernel_height, kernel_width, pad_height, pad_width;
    int64_t relu, pool;                // whether ReLU, and max-pooling by 2, follow
    int64_t weight, bias;              // where they begin in the model; bias -1: none
};
constexpr int LAYER_FIELDS = 13;

// Where a layer's numbers lie in the workspace, in floats from its beginning. Written by `Kernel::lay_out`.
struct Place {
    int64_t height, width, channels;   // of the input as it is stored, with its padding
    int64_t down;                      // from an input row to the next
    int64_t across;                    // from an input column to the next
    int64_t input, gradient, stride;   // input, its gradient, and from one sample to the next in both
    int64_t inside;                    // where, in a sample, the first value that is not padding lies
    int64_t out_height, out_width;     // after pooling
    int64_t maxima;                    // for each output the offset of the patch that it was the maximum of
    int64_t maxima_stride;
    int64_t rows, length, padded;      // a patch: rows of `length` values, stored as `padded`
    int64_t offsets;                   // where in the input the rows of a patch begin
    int64_t theta, bias;               // in the vector of packed parameters
    int64_t forward;                   // convolution: the weights as the forward pass wants them
};

struct Sizes {
    int64_t parameters;                // floats of the packed vector
    int64_t workspace;                 // floats
    int64_t entries;                   // where the list of the backward pass lies
    int64_t classes, logits, logits_stride, logits_gradient;
};

struct Options {
    int64_t epochs, samples, batch;
    float lr, momentum, decay, proximal;
};

struct Fit {
    const Layer* layers;
    const Place* places;
    int64_t count;
    Sizes sizes;
    Options options;
    const float* x;                    // samples x features
    const int64_t* y;
    const int64_t* order;              // epochs x samples
    float* workspace;                  // zeros
    float* theta;                      // packed
    float* velocity;                   // zeros
    const float* received;             // packed, or null: no proximal term
    const float* push;                 // packed, or null: no shift
    const float* drift;                // packed, or null: no drift
    bool (*stop)();                    // asked after each epoch
};

struct Kernel {
    const char* name;
    int64_t lanes;
    Sizes (*lay_out)(const Layer* layers, int64_t count, int64_t batch, bool training, Place* places);
    void (*pack)(const Layer* layers, const Place* places, int64_t count, const float* model, float* packed);
    void (*unpack)(const Layer* layers, const Place* places, int64_t count, const float* packed, float* model);
    // Train; return the sum of the batches' losses in the last epoch. Ends early at an epoch after which the loss or the
    // model is not finite, or when told to stop.
    float (*fit)(const Fit& fit, bool* finite);
    void (*forward)(const Fit& fit, float* logits);  // logits of all samples; the batch is the block
};

extern const Kernel baseline;
#ifdef ILK_X86
extern const Kernel avx2, avx512;
#endif

}  // namespace ilk
