// Threads that train at once on the same data, under ThreadSanitizer: see `make sanitize`. Python and PyTorch are not built
// with it, so this program calls the kernels itself.
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "../../src/ilk/native/kernel/kernel.h"

namespace {

constexpr int64_t SAMPLES = 23, BATCH = 10, EPOCHS = 3;
const std::vector<ilk::Layer> LAYERS = {
    // conv, c, h, w, outputs, kernel, kernel, pad, pad, relu, pool, weight, bias
    {1, 1, 12, 12, 6, 3, 3, 1, 1, 1, 1, 0, 54},
    {1, 6, 6, 6, 20, 3, 3, 0, 0, 1, 1, 60, 1140},
    {0, 20, 2, 2, 30, 1, 1, 0, 0, 1, 0, 1160, 3560},
    {0, 30, 1, 1, 10, 1, 1, 0, 0, 0, 0, 3590, 3890},
};
constexpr int64_t PARAMETERS = 3900;

struct Data {
    std::vector<float> x, model;
    std::vector<int64_t> y, order;
};

bool go_on() { return false; }

std::vector<float> trained(const ilk::Kernel& kernel, const Data& data) {
    std::vector<ilk::Place> places(LAYERS.size());
    ilk::Fit fit = {};
    fit.layers = LAYERS.data(), fit.places = places.data(), fit.count = static_cast<int64_t>(LAYERS.size());
    fit.sizes = kernel.lay_out(fit.layers, fit.count, BATCH, true, places.data());
    fit.options = {EPOCHS, SAMPLES, BATCH, 0.05f, 0.5f, 0.01f, 0.0f};
    std::vector<float> workspace(fit.sizes.workspace + fit.sizes.parameters), theta(fit.sizes.parameters), velocity(theta);
    fit.x = data.x.data(), fit.y = data.y.data(), fit.order = data.order.data(), fit.stop = go_on;
    fit.workspace = workspace.data(), fit.theta = theta.data(), fit.velocity = velocity.data();
    kernel.pack(fit.layers, fit.places, fit.count, data.model.data(), fit.theta);
    bool finite = false;
    kernel.fit(fit, &finite);
    std::vector<float> result(PARAMETERS);
    kernel.unpack(fit.layers, fit.places, fit.count, fit.theta, result.data());
    if (!finite) result.clear();
    return result;
}

bool raceless(const ilk::Kernel& kernel, const Data& data) {
    std::vector<float> alone = trained(kernel, data);
    std::vector<std::vector<float>> found(4);
    std::vector<std::thread> threads;
    for (auto& one : found) threads.emplace_back([&] { one = trained(kernel, data); });
    for (auto& thread : threads) thread.join();
    bool same = !alone.empty();
    for (const auto& one : found) same = same && one.size() == alone.size() && !memcmp(one.data(), alone.data(), 4 * alone.size());
    printf("%s: %s\n", kernel.name, same ? "the same bits in four threads" : "DIFFERENT BITS");
    return same;
}

}  // namespace

int main() {
    Data data;
    uint32_t state = 1;
    auto next = [&state] { return state = state * 1664525u + 1013904223u, static_cast<float>(state >> 8) / (1 << 24) - 0.5f; };
    for (int64_t i = 0; i < SAMPLES * 144; ++i) data.x.push_back(next());
    for (int64_t i = 0; i < PARAMETERS; ++i) data.model.push_back(0.2f * next());
    for (int64_t i = 0; i < SAMPLES; ++i) data.y.push_back(i % 10);
    for (int64_t i = 0; i < EPOCHS * SAMPLES; ++i) data.order.push_back((i * 7) % SAMPLES);
    bool good = raceless(ilk::baseline, data);
#ifdef ILK_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) good = raceless(ilk::avx2, data) && good;
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) good = raceless(ilk::avx512, data) && good;
#endif
    return good ? 0 : 1;
}
