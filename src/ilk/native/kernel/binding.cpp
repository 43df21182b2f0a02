// What Python sees: a network of layers on one instruction set. Everything is checked here, before a kernel is entered.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel.h"

namespace py = pybind11;
using ilk::Kernel;
using ilk::Layer;
using Floats = py::array_t<float>;
using Integers = py::array_t<int64_t>;

namespace {

constexpr int64_t BLOCK = 20;            // samples a forward pass: a multiple of every tile of samples
constexpr int64_t MOST = int64_t{1} << 31;  // floats of a workspace: offsets are 32 bits

void require(bool is_so, const std::string& words) {
    if (!is_so) throw std::invalid_argument(words);
}

std::vector<const Kernel*> kernels() {
    std::vector<const Kernel*> found;
#ifdef ILK_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        found.push_back(&ilk::avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&ilk::avx2);
#endif
    found.push_back(&ilk::baseline);
    return found;
}

// Zeros, aligned to cache lines.
class Buffer {
public:
    explicit Buffer(int64_t floats) : at_(static_cast<float*>(::operator new(bytes(floats), ALIGNED))) {
        __builtin_memset(at_, 0, bytes(floats));
    }
    ~Buffer() { ::operator delete(at_, ALIGNED); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    float* get() const { return at_; }

private:
    static constexpr std::align_val_t ALIGNED{64};
    static size_t bytes(int64_t floats) { return static_cast<size_t>(floats + 16) * sizeof(float); }
    float* at_;
};

bool interrupted() {  // Ctrl-C, once an epoch
    py::gil_scoped_acquire held;
    return PyErr_CheckSignals() != 0;
}

class Network {
public:
    Network(const Integers& layers, int64_t parameters, const std::string& set) : parameters_(parameters) {
        require(layers.ndim() == 2 && layers.shape(0) > 0 && layers.shape(1) == ilk::LAYER_FIELDS, "layers: wrong shape");
        for (py::ssize_t l = 0; l < layers.shape(0); ++l) {
            Layer layer;
            auto* field = reinterpret_cast<int64_t*>(&layer);
            for (int f = 0; f < ilk::LAYER_FIELDS; ++f) field[f] = layers.at(l, f);
            check(layer);
            layers_.push_back(layer);
        }
        require(!layers_.back().convolution, "the last layer must be a dense one");
        for (const Kernel* kernel : kernels())
            if (set == kernel->name) kernel_ = kernel;
        require(kernel_, "this machine has no instruction set '" + set + "'");
    }

    py::tuple fit(const Floats& start, const Floats& x, const Integers& y, const Integers& order, int64_t batch, float lr,
                  float momentum, float decay, float proximal, const py::object& shift, const py::object& drift) const {
        check(start, x);
        int64_t samples = x.shape(0);
        require(y.ndim() == 1 && y.shape(0) == samples && contiguous(y), "y: one label a sample is needed");
        require(order.ndim() == 2 && order.shape(1) == samples && contiguous(order), "order: epochs x samples is needed");
        require(batch > 0, "a batch needs a sample");
        within(y, layers_.back().outputs, "y: a label is not one of the classes");
        within(order, samples, "order: there is no such sample");
        Floats model(parameters_), push = term(shift, "shift: wrong shape"), pull = term(drift, "drift: wrong shape");
        std::vector<ilk::Place> places(layers_.size());
        ilk::Fit fit = {};
        prepare(fit, places, x, std::min(batch, std::max<int64_t>(samples, 1)), true);
        Buffer work(fit.sizes.workspace + fit.sizes.parameters), theta(fit.sizes.parameters), velocity(fit.sizes.parameters);
        std::unique_ptr<Buffer> received, pushed, pulled;
        fit.options.epochs = order.shape(0);
        fit.options.lr = lr, fit.options.momentum = momentum, fit.options.decay = decay, fit.options.proximal = proximal;
        fit.y = y.data(), fit.order = order.data(), fit.stop = interrupted;
        fit.workspace = work.get(), fit.theta = theta.get(), fit.velocity = velocity.get();
        pack(fit, start.data(), fit.theta);
        if (proximal != 0) {
            received = std::make_unique<Buffer>(fit.sizes.parameters);
            pack(fit, start.data(), received->get());
            fit.received = received->get();
        }
        if (push.size()) {
            pushed = std::make_unique<Buffer>(fit.sizes.parameters);
            pack(fit, push.data(), pushed->get());
            fit.push = pushed->get();
        }
        if (pull.size()) {
            pulled = std::make_unique<Buffer>(fit.sizes.parameters);
            pack(fit, pull.data(), pulled->get());
            fit.drift = pulled->get();
        }
        float* trained = model.mutable_data();
        __builtin_memcpy(trained, start.data(), parameters_ * sizeof(float));
        bool finite = true;
        float loss = 0;
        {
            py::gil_scoped_release released;
            loss = kernel_->fit(fit, &finite);
            kernel_->unpack(fit.layers, fit.places, fit.count, fit.theta, trained);
        }
        if (PyErr_Occurred()) throw py::error_already_set();
        return py::make_tuple(model, loss, finite);
    }

    // Of the mean loss over all samples: what one step leaves in a velocity that began at zero.
    Floats gradient(const Floats& model, const Floats& x, const Integers& y) const {
        check(model, x);
        int64_t samples = x.shape(0);
        require(y.ndim() == 1 && y.shape(0) == samples && samples && contiguous(y), "y: one label a sample is needed");
        within(y, layers_.back().outputs, "y: a label is not one of the classes");
        std::vector<int64_t> order(samples);
        for (int64_t i = 0; i < samples; ++i) order[i] = i;
        std::vector<ilk::Place> places(layers_.size());
        ilk::Fit fit = {};
        prepare(fit, places, x, samples, true);
        Buffer work(fit.sizes.workspace + fit.sizes.parameters), theta(fit.sizes.parameters), velocity(fit.sizes.parameters);
        fit.options.epochs = 1;
        fit.y = y.data(), fit.order = order.data(), fit.stop = interrupted;
        fit.workspace = work.get(), fit.theta = theta.get(), fit.velocity = velocity.get();
        pack(fit, model.data(), fit.theta);
        Floats result(parameters_);
        float* to = result.mutable_data();
        __builtin_memset(to, 0, parameters_ * sizeof(float));
        bool finite = true;
        {
            py::gil_scoped_release released;
            kernel_->fit(fit, &finite);
            kernel_->unpack(fit.layers, fit.places, fit.count, fit.velocity, to);
        }
        if (PyErr_Occurred()) throw py::error_already_set();
        return result;
    }

    Floats forward(const Floats& model, const Floats& x) const {
        check(model, x);
        std::vector<ilk::Place> places(layers_.size());
        ilk::Fit fit = {};
        prepare(fit, places, x, std::min(BLOCK, std::max<int64_t>(x.shape(0), 1)), false);
        Buffer work(fit.sizes.workspace), theta(fit.sizes.parameters);
        fit.workspace = work.get(), fit.theta = theta.get();
        Floats logits({static_cast<py::ssize_t>(x.shape(0)), static_cast<py::ssize_t>(fit.sizes.classes)});
        float* to = logits.mutable_data();
        py::gil_scoped_release released;
        pack(fit, model.data(), fit.theta);
        kernel_->forward(fit, to);
        return logits;
    }

private:
    template <class Array>
    static bool contiguous(const Array& array) { return (array.flags() & py::array::c_style) != 0; }

    static void within(const Integers& values, int64_t end, const char* words) {
        const int64_t* at = values.data();
        for (py::ssize_t i = 0; i < values.size(); ++i) require(at[i] >= 0 && at[i] < end, words);
    }

    Floats term(const py::object& given, const char* words) const {  // as long as the model; or empty: none
        if (given.is_none()) return Floats(0);
        auto values = given.cast<Floats>();
        require(values.ndim() == 1 && values.shape(0) == parameters_ && contiguous(values), words);
        return values;
    }

    void check(const Layer& l) const {
        const int64_t limit = 1 << 20;
        int64_t last = 0;
        for (int64_t size : {l.channels, l.height, l.width, l.outputs, l.kernel_height, l.kernel_width})
            require(size > 0 && size < limit * 64, "a layer's sizes must be positive, and not beyond reason");
        require(l.pad_height >= 0 && l.pad_width >= 0 && l.pad_height < limit && l.pad_width < limit, "padding: out of range");
        int64_t height = l.height, width = l.width, inputs = l.channels * height * width;
        if (l.convolution) {
            height += 2 * l.pad_height - l.kernel_height + 1, width += 2 * l.pad_width - l.kernel_width + 1;
            require(height > l.pool && width > l.pool, "a kernel does not fit into its input");
            inputs = l.channels * l.kernel_height * l.kernel_width;
        } else {
            require(!l.pool, "a dense layer has no pooling");
        }
        last = l.weight + l.outputs * inputs;
        require(l.weight >= 0 && last <= parameters_ && l.bias >= -1 && l.bias + l.outputs <= parameters_, "a layer is not in the model");
        if (layers_.empty()) return;
        const Layer& before = layers_.back();
        require(before.convolution || !l.convolution, "a convolution cannot follow a dense layer");
        int64_t step = before.pool ? 2 : 1, out_height = 1, out_width = 1;
        if (before.convolution) {
            out_height = (before.height + 2 * before.pad_height - before.kernel_height + 1) / step;
            out_width = (before.width + 2 * before.pad_width - before.kernel_width + 1) / step;
        }
        require(l.channels == before.outputs && l.height == out_height && l.width == out_width, "a layer does not fit the one before");
    }

    void check(const Floats& model, const Floats& x) const {
        require(model.ndim() == 1 && model.shape(0) == parameters_ && contiguous(model), "model: wrong shape");
        const Layer& first = layers_[0];
        int64_t features = first.channels * first.height * first.width;
        require(x.ndim() >= 1 && x.size() == x.shape(0) * features && contiguous(x), "x: wrong shape, or not contiguous");
    }

    void prepare(ilk::Fit& fit, std::vector<ilk::Place>& places, const Floats& x, int64_t batch, bool training) const {
        fit.layers = layers_.data(), fit.places = places.data(), fit.count = static_cast<int64_t>(layers_.size());
        fit.sizes = kernel_->lay_out(fit.layers, fit.count, batch, training, places.data());
        require(fit.sizes.workspace + fit.sizes.parameters < MOST, "batches of this size are too large");
        fit.options.samples = x.shape(0), fit.options.batch = batch, fit.x = x.data();
    }

    void pack(const ilk::Fit& fit, const float* model, float* packed) const {
        kernel_->pack(fit.layers, fit.places, fit.count, model, packed);
    }

    std::vector<Layer> layers_;
    int64_t parameters_;
    const Kernel* kernel_ = nullptr;
};

}  // namespace

PYBIND11_MODULE(_kernel, module) {
    module.doc() = "Local training and forward passes of small networks. See ilk/native/kernel.";
    module.def("sets", [] {
        py::list names;
        for (const Kernel* kernel : kernels()) names.append(kernel->name);
        return names;
    }, "The instruction sets that this machine has, the fastest first.");
    py::class_<Network>(module, "Network")
        .def(py::init<const Integers&, int64_t, const std::string&>(), py::arg("layers").noconvert(), py::arg("parameters"), py::arg("set"))
        .def("fit", &Network::fit, py::arg("start").noconvert(), py::arg("x").noconvert(), py::arg("y").noconvert(),
             py::arg("order").noconvert(), py::arg("batch"), py::arg("lr"), py::arg("momentum"), py::arg("decay"),
             py::arg("proximal"), py::arg("shift"), py::arg("drift"), "Train; return the model, the last epoch's loss, and whether all is finite.")
        .def("gradient", &Network::gradient, py::arg("model").noconvert(), py::arg("x").noconvert(), py::arg("y").noconvert(),
             "The gradient of the mean loss.")
        .def("forward", &Network::forward, py::arg("model").noconvert(), py::arg("x").noconvert(), "The logits of all samples.");
}
