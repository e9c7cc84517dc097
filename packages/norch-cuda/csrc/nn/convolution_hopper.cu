// Which convolutions in float32 run on the tensor cores of compute capability 9.0, and their launches.
#include "nn/convolution_hopper.cuh"

#include <algorithm>
#include <optional>

#include "common/scratch.h"
#include "matmul/cublaslt.h"
#include "nn/convolution.h"
#include "runtime/allocator.h"

namespace norch::nn {
namespace {

using namespace hopper;

constexpr const char* WHAT = "a convolution";
constexpr int64_t MOST_SHARED = 227 << 10;
constexpr double LEAST_USED = 0.5;  // of the places that are computed
constexpr int LEAST_CHANNELS = 16;  // of fewer our other kernels are faster
constexpr int64_t LEAST_BLOCKS = 64;
// Beyond these cuDNN's gradient of a weight takes a fourth to four fifths of ours, within them 1.1 to 5 times as long.
constexpr int64_t MOST_WEIGHTS = 64 * 64, LEAST_PLACES = 10 << 10;  // channels times channels; of all images

/// How images are cut into strips; of a gradient of the weight, `grad` too. None where they do not fit shared memory.
std::optional<Windows> windows_of(const Convolution& c, bool is_weight) {
    Windows p = {};
    p.from = int(c.c), p.to = int(c.o), p.rows = int(c.rows), p.columns = int(c.columns);
    p.kh = int(c.kh), p.kw = int(c.kw), p.gap_y = int(c.gap_y), p.gap_x = int(c.gap_x), p.top = int(c.top);
    const int width = p.columns + (p.kw - 1) * p.gap_x, most = std::min(MOST_PLACES / width, p.rows);
    if (most == 0) return std::nullopt;
    p.strips = int(ceil_div(p.rows, most));
    p.strip = int(ceil_div(p.rows, p.strips));
    p.items = int(c.n) * p.strips;
    p.tiles = int(ceil_div(p.strip * width, 64));
    p.deep = int(ceil_div(c.c, DEEP));
    if (p.items * ceil_div(c.o, 64) * (is_weight ? p.deep : 1) < LEAST_BLOCKS) return std::nullopt;
    if (double(p.rows) * p.columns < LEAST_USED * p.strips * p.tiles * 64) return std::nullopt;
    const int furthest = (p.kh - 1) * p.gap_y * width + (p.kw - 1) * p.gap_x;
    p.image.width = p.grad.width = FastDivide(uint32_t(width));
    p.image.rows = p.strip + (p.kh - 1) * p.gap_y, p.grad.rows = p.strip;
    p.image.h = int(c.h), p.image.w = int(c.w), p.image.left = int(c.left);
    p.grad.h = p.rows, p.grad.w = p.columns, p.grad.left = 0;
    p.grad.reserved = int(ceil_div(p.strip * width, 16)) * 16;
    p.image.reserved = (is_weight ? p.grad.reserved : p.tiles * 64) + furthest;
    p.grad.count = FastDivide(uint32_t(p.grad.reserved));
    p.image.count = FastDivide(uint32_t(is_weight ? p.image.reserved : p.image.rows * width));
    return p;
}

int64_t place_bytes(const Places& places, int channels) { return int64_t(PARTS) * channels / PACKET * places.step(); }

/// Blocks for the items, as many for each, where `others` times as many are there and some at once on a multiprocessor.
unsigned blocks_for_items(int items, int64_t others, int at_once) {
    const int64_t most = std::max<int64_t>(1, multiprocessors() * at_once / others);
    const int64_t each = ceil_div(items, std::min<int64_t>(most, items));
    return unsigned(ceil_div(items, each));
}

template <auto KERNEL>
void allow_shared() {
    static bool is_prepared[64];
    const int device = launch_stream().device;
    if (device < 64 && is_prepared[device]) return;
    check(cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, int(MOST_SHARED)), WHAT);
    if (device < 64) is_prepared[device] = true;
}

template <int ACROSS>
class WindowsKernel final : public Kernel {
public:
    WindowsKernel(const Windows& p, const Weights& weights, bool has_bias)
        : p_(p), weights_(weights), has_bias_(has_bias), across_(unsigned(ceil_div(p.to, ACROSS))) {
        weights_.across = ACROSS;
        p_.is_resident = shared_bytes(p_.deep) <= MOST_SHARED;
        const int at_once = ACROSS == 32 && 2 * shared_bytes(p_.is_resident ? p_.deep : 1) <= MOST_SHARED ? 2 : 1;
        blocks_ = dim3(blocks_for_items(p.items, across_, at_once), across_);
        note_scratch(int64_t(scratch_bytes()));
    }
    bool fits() const { return shared_bytes(1) <= MOST_SHARED; }

    void run(char* const* data, const Scalar*) const override {
        allow_shared<&windows_kernel<ACROSS>>();
        const Scratch<> scratch(scratch_bytes());
        auto at = [data](int i) { return reinterpret_cast<float*>(data[i]); };
        const int64_t threads = int64_t(weights_.taps) * (DEEP / PACKET) * ACROSS;
        launch_kernel(WHAT, split_weights_kernel, dim3(unsigned(ceil_div(threads, THREADS)), unsigned(p_.deep), across_),
                      THREADS, weights_, scratch.data(), at(2));
        const Grid grid{blocks_, WINDOW_TEAM, size_t(shared_bytes(p_.is_resident ? p_.deep : 1))};
        launch_kernel(WHAT, windows_kernel<ACROSS>, grid, p_, at(0), at(1), scratch.data(),
                      has_bias_ ? at(3) : nullptr);
    }

private:
    size_t scratch_bytes() const { return size_t(across_) * p_.deep * weight_bytes(p_.taps(), ACROSS); }
    int64_t shared_bytes(int resident) const {
        return int64_t(resident) * weight_bytes(p_.taps(), ACROSS) + place_bytes(p_.image, DEEP);
    }

    Windows p_;
    Weights weights_;
    bool has_bias_;
    unsigned across_;
    dim3 blocks_;
};

class WeightKernel final : public Kernel {
public:
    explicit WeightKernel(const Windows& p) : p_(p), blocks_(1, unsigned(p.deep), unsigned(ceil_div(p.to, TO))) {
        blocks_.x = blocks_for_items(p.items, int64_t(blocks_.y) * blocks_.z, 1);
        note_scratch(int64_t(part_bytes()));
    }
    bool fits() const { return shared_bytes() <= MOST_SHARED; }

    void run(char* const* data, const Scalar*) const override {
        allow_shared<&weight_kernel>();
        const Scratch<> parts(part_bytes());
        auto at = [](char* p) { return reinterpret_cast<float*>(p); };
        const Grid grid{blocks_, WEIGHT_TEAM, size_t(shared_bytes())};
        launch_kernel(WHAT, weight_kernel, grid, p_, at(parts.data()), at(data[1]), at(data[2]));
        launch_sum_of_parts(DType::f32, data[0], parts.data(), blocks_.x, numel());
    }

private:
    int64_t numel() const { return int64_t(p_.to) * p_.from * p_.taps(); }
    size_t part_bytes() const { return size_t(blocks_.x * numel()) * sizeof(float); }
    int64_t shared_bytes() const { return place_bytes(p_.grad, TO) + place_bytes(p_.image, DEEP); }

    Windows p_;
    dim3 blocks_;
};

template <class Made, class... A>
KernelPtr make(const A&... arguments) {
    auto kernel = std::make_unique<Made>(arguments...);
    return kernel->fits() ? std::move(kernel) : nullptr;
}

}  // namespace

KernelPtr tensor_convolution(ConvolutionKind kind, const Request& r) {
    const bool is_forward = kind == ConvolutionKind::forward, is_weight = kind == ConvolutionKind::weight_grad;
    if (matmul::allows_tf32 || properties(current_device()).major != 9) return nullptr;
    for (size_t i = 0; i < r.operands.size(); ++i) {
        const Operand& operand = r.operands[i];
        if (operand.dtype != DType::f32 || operand.numel() == 0 || operand.is_scalar) return nullptr;
        if (i < 3 && !operand.is_contiguous()) return nullptr;
    }
    const Operand& image = r.operands[is_forward ? 1 : is_weight ? 2 : 0];
    const Operand& result = r.operands[is_forward ? 0 : 1];
    Convolution c(image, result, r.operands[is_weight ? 0 : 2].shape, r.attrs);
    const bool is_one = c.step_y == 1 && c.step_x == 1 && c.groups == 1;
    if (!c.is_usual() || !is_one || c.is_pointwise() || c.kh * c.kw > MOST_TAPS) return nullptr;
    if (c.c < (is_forward ? DEEP : LEAST_CHANNELS) || c.o < LEAST_CHANNELS || c.n * c.rows > INT32_MAX) return nullptr;
    if (is_weight) {
        if (c.c * c.o > MOST_WEIGHTS || c.n * c.places() < LEAST_PLACES) return nullptr;
        const std::optional<Windows> p = windows_of(c, true);
        if (!p) return nullptr;
        return make<WeightKernel>(*p);
    }
    Weights weights = {};
    weights.taps = int(c.kh * c.kw);
    weights.to_step = c.depth(), weights.from_step = weights.taps;
    if (!is_forward) {  // a convolution of the gradient with the weight turned
        std::swap(c.c, c.o), std::swap(c.h, c.rows), std::swap(c.w, c.columns);
        std::swap(weights.to_step, weights.from_step);
        c.top = (c.kh - 1) * c.gap_y - c.top, c.left = (c.kw - 1) * c.gap_x - c.left;
        weights.is_turned = true;
    }
    std::optional<Windows> p = windows_of(c, false);
    if (!p) return nullptr;
    weights.from = p->from, weights.to = p->to, weights.deep = p->deep;
    const bool has_bias = r.operands.size() == 4;
    p->bias_step = has_bias ? r.operands[3].strides[0] : 0;
    KernelPtr kernel = p->to > 32 ? make<WindowsKernel<64>>(*p, weights, has_bias) : nullptr;
    return kernel ? std::move(kernel) : make<WindowsKernel<32>>(*p, weights, has_bias);
}

}  // namespace norch::nn
