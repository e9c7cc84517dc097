#include "nn/convolution_cudnn.h"

#include <algorithm>
#include <array>
#include <optional>

#include "common/operands.h"
#include "common/staging.h"
#include "cudnn/graph.h"
#include "matmul/cublaslt.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/runtime.h"

namespace norch::nn {
namespace {

// cudnnBackendDescriptorType_t and cudnnBackendAttributeName_t
enum { CONVOLUTION = 1, FORWARD = 10, WEIGHT_GRAD = 11, INPUT_GRAD = 12, POINTWISE = 0, POINTWISE_OPERATION = 13 };
enum {
    POINTWISE_MODE = 0,
    POINTWISE_TYPE = 1,
    CONVOLUTION_TYPE = 100,
    CONVOLUTION_MODE = 101,
    CONVOLUTION_DILATION = 102,
    CONVOLUTION_STRIDE = 103,
    CONVOLUTION_PADS_AFTER = 104,
    CONVOLUTION_PADS_BEFORE = 105,
    CONVOLUTION_DIMS = 106,
    POINTWISE_HOW = 750,
    POINTWISE_X = 751,
    POINTWISE_B = 752,
    POINTWISE_Y = 753,
};
constexpr int CROSS_CORRELATION = 1, ADD = 0;

/// The attributes of an operation: alpha, beta, how, and the tensors in the order image, weight, result.
struct Names {
    int operation, alpha, beta, how;
    std::array<int, 3> tensors;
};
constexpr Names NAMES[] = {
    {FORWARD, 700, 701, 702, {704, 703, 705}},
    {INPUT_GRAD, 706, 707, 708, {710, 709, 711}},
    {WEIGHT_GRAD, 712, 713, 714, {716, 715, 717}},
};

/// Where image, weight and result are among the operands.
constexpr std::array<size_t, 3> PLACES[] = {{1, 2, 0}, {0, 2, 1}, {2, 0, 1}};

using Sizes = std::vector<int64_t>;

/// The strides of elements without gaps, row by row or with channels that vary fastest.
Sizes packed_strides(const Sizes& shape, bool is_last) {
    Sizes out(shape.size());
    int64_t step = 1;
    auto put = [&](size_t d) {
        out[d] = step;
        step *= shape[d];
    };
    if (is_last) put(1);
    for (size_t d = shape.size(); d-- > (is_last ? 2 : 1);) put(d);
    put(0);
    return out;
}

bool lies_so(const Operand& operand, bool is_last) {
    const Sizes wanted = packed_strides(operand.shape, is_last);
    for (size_t d = 0; d < wanted.size(); ++d)
        if (operand.shape[d] > 1 && operand.strides[d] != wanted[d]) return false;
    return true;
}

/// What is convolved how. Both pads are such that as many windows fit as the result has places: which of the elements
/// behind are not there makes no difference where no window sees them.
struct Moves {
    Sizes stride, dilation, before, after;
    int64_t groups;
    bool fits = true;

    Moves(const Attrs& attrs, const Sizes& image, const Sizes& weight, const Sizes& result)
        : stride(attrs.integers("stride")), dilation(attrs.integers("dilation")), groups(attrs.integer("groups")) {
        const Sizes& pads = attrs.integers("pads");
        for (size_t d = 0; d < stride.size(); ++d) {
            const int64_t seen = (result[d + 2] - 1) * stride[d] + dilation[d] * (weight[d + 2] - 1) + 1;
            const int64_t least = seen - image[d + 2] - pads[2 * d], most = least + stride[d] - 1;
            before.push_back(pads[2 * d]);
            after.push_back(std::clamp(pads[2 * d], least, most));
            fits = fits && before[d] >= 0 && after[d] >= 0;
        }
    }
};

/// How operands are to lie: row by row, or with channels that vary fastest, of which images and weights may be given
/// more, all zeros, since tensor cores take several at once.
struct Layout {
    bool is_last;
    int64_t channels = 0;  // that images and weights get; 0 for their own
};

/// The plan for operands that lie one way, and the copies of those that lie another.
class CudnnConvolution final : public Kernel {
public:
    CudnnConvolution(ConvolutionKind kind, const Request& r, const Layout& layout)
        : kind_(kind), is_last_(layout.is_last), op_(r.op), count_(r.operands.size()), attrs_(r.attrs) {
        for (size_t i = 0; i < count_; ++i) {
            const Operand& given = r.operands[i];
            StagedOperand& staged = staged_[i];
            staged.view = given;
            bytes_[i] = given.numel() * size_of(given.dtype);
            if (i == 3) continue;
            Operand part = given;  // of the copy
            is_padded_[i] = layout.channels && i != PLACES[int(kind)][2];
            if (is_padded_[i]) staged.view.shape[1] = layout.channels;
            staged.view.strides = part.strides = packed_strides(staged.view.shape, is_last_);
            if (!is_padded_[i] && lies_so(given, is_last_)) continue;
            staged.copy = i == 0 ? copy_kernel(given, part) : copy_kernel(part, given);
            staged.nbytes = staged.view.numel() * size_of(given.dtype);
        }
        if (count_ == 4) bias_ = r.operands[3];
    }

    /// Returns false where cuDNN has no plan. `most`: how many plans there are to be, to choose among.
    bool prepare(int device, size_t most = 1) {
        plans_ = make(device, most, count_ == 4);
        if (plans_.empty() && count_ == 4) {  // the bias is added by our own kernel
            has_fused_bias_ = false;
            plans_ = make(device, most, false);
            Operand out = staged_[0].view, bias = out;
            bias.strides.assign(out.shape.size(), 0);
            bias.strides[1] = bias_->strides[0];
            Registry arithmetic;
            elementwise::add_arithmetic(arithmetic);
            add_bias_ = arithmetic.at("add")(Request{"add", {out, out, bias}, {}});
        }
        return !plans_.empty();
    }
    size_t choices() const { return plans_.size(); }
    void choose(size_t which) { chosen_ = which; }
    /// Forgets the plans that were not chosen.
    void settle() {
        std::swap(plans_[0], plans_[chosen_]);
        plans_.resize(1);
        chosen_ = 0;
    }

    void run(char* const* data, const Scalar* scalars) const override {
        std::optional<Scratch<>> copies[3];
        char* seen[4] = {};
        for (size_t i = 0; i < count_; ++i) {
            seen[i] = data[i];
            if (!staged_[i].nbytes) continue;
            seen[i] = copies[i].emplace(size_t(staged_[i].nbytes)).data();
            if (i == 0) continue;
            if (is_padded_[i])
                check(cudaMemsetAsync(seen[i], 0, size_t(staged_[i].nbytes), stream_handle()), "filling an operand");
            run_copy(*staged_[i].copy, seen[i], data[i]);
        }
        with_aligned(seen, [&](char* const* aligned) {
            const cudnn::Plan& plan = plan_for(launch_stream().device);
            const std::pair<int64_t, const void*> all[] = {{0, aligned[0]}, {1, aligned[1]}, {2, aligned[2]}, {3, aligned[3]}};
            plan.run(all, count_ == 4 && has_fused_bias_ ? 4 : 3);
        });
        if (add_bias_) {
            char* const both[] = {seen[0], seen[0], seen[3]};
            add_bias_->run(both, scalars);
        }
        if (copies[0]) run_copy(*staged_[0].copy, data[0], seen[0]);
    }

private:
    static constexpr uintptr_t ALIGNMENT = 16;

    /// Calls body(aligned) with the operands where they are, or copies of those that lie at odd addresses.
    template <class Body>
    void with_aligned(char* const* seen, const Body& body) const {
        std::optional<Scratch<>> copies[4];
        char* at[4] = {seen[0], seen[1], seen[2], seen[3]};
        auto move = [&](char* to, const char* from, int64_t bytes) {
            check(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDeviceToDevice, stream_handle()), "copying an operand");
        };
        for (size_t i = 0; i < count_; ++i) {
            if (uintptr_t(seen[i]) % ALIGNMENT == 0) continue;
            at[i] = copies[i].emplace(size_t(bytes_[i])).data();
            if (i > 0) move(at[i], seen[i], bytes_[i]);
        }
        body(at);
        if (copies[0]) move(seen[0], at[0], bytes_[0]);
    }

    const cudnn::Plan& plan_for(int device) const {
        if (plans_[chosen_]->device() == device) return *plans_[chosen_];
        for (const cudnn::PlanPtr& plan : others_)
            if (plan->device() == device) return *plan;
        std::vector<cudnn::PlanPtr> made = make(device, 1, count_ == 4 && has_fused_bias_);
        if (made.empty()) throw std::runtime_error(cudnn::last_refusal);
        others_.push_back(std::move(made[0]));
        return *others_.back();
    }

    std::vector<cudnn::PlanPtr> make(int device, size_t most, bool with_bias) const {
        const std::array<size_t, 3>& places = PLACES[int(kind_)];
        const Operand &image = staged_[places[0]].view, &weight = staged_[places[1]].view;
        const Operand& result = staged_[places[2]].view;
        const Moves moves(attrs_, image.shape, weight.shape, result.shape);
        cudnn::Graph graph(op_);
        cudnn::Demands demands;
        demands.is_ieee = image.dtype == DType::f32 && !matmul::allows_tf32;
        try {
            cudnn::Part& how = graph.part(CONVOLUTION);
            how.set(CONVOLUTION_DIMS, int64_t(moves.stride.size()));
            how.set(CONVOLUTION_TYPE, cudnn::TYPE_DATA_TYPE, cudnn::FLOAT);
            how.set(CONVOLUTION_MODE, cudnn::TYPE_CONVOLUTION_MODE, CROSS_CORRELATION);
            how.set(CONVOLUTION_STRIDE, moves.stride);
            how.set(CONVOLUTION_DILATION, moves.dilation);
            how.set(CONVOLUTION_PADS_BEFORE, moves.before);
            how.set(CONVOLUTION_PADS_AFTER, moves.after);
            how.finalize();
            const Names& names = NAMES[int(kind_)];
            cudnn::Part& operation = graph.operation(names.operation);
            operation.set(names.how, how);
            operation.set(names.alpha, 1.0f);
            operation.set(names.beta, 0.0f);
            for (size_t i = 0; i < 3; ++i) {
                const Operand& o = staged_[places[i]].view;
                cudnn::Tensor tensor{cudnn::data_type(o.dtype), o.shape, o.strides};
                if (with_bias && places[i] == 0) tensor.type = cudnn::FLOAT, tensor.is_virtual = true;
                const Descriptor described = graph.tensor(tensor.is_virtual ? SUM : int64_t(places[i]), tensor);
                operation.set(names.tensors[i], described);
                if (tensor.is_virtual) add_bias(graph, described);
            }
            return graph.plans(device, demands, most);
        } catch (const cudnn::Failure& failure) {
            if (!failure.is_refusal()) throw;
            cudnn::last_refusal = failure.what();
            return {};
        }
    }

    using Descriptor = cudnn::Descriptor;
    static constexpr int64_t SUM = 4;  // the number of the result before the bias is added

    void add_bias(cudnn::Graph& graph, Descriptor sum) const {
        const Operand& out = staged_[0].view;
        Sizes shape(out.shape.size(), 1);
        shape[1] = out.shape[1];
        const Descriptor bias = graph.tensor(3, {cudnn::data_type(bias_->dtype), shape, packed_strides(shape, is_last_)});
        const Descriptor whole = graph.tensor(0, {cudnn::data_type(out.dtype), out.shape, out.strides});
        cudnn::Part& how = graph.part(POINTWISE);
        how.set(POINTWISE_MODE, cudnn::TYPE_POINTWISE_MODE, ADD);
        how.set(POINTWISE_TYPE, cudnn::TYPE_DATA_TYPE, cudnn::FLOAT);
        how.finalize();
        cudnn::Part& operation = graph.operation(POINTWISE_OPERATION);
        operation.set(POINTWISE_HOW, how);
        operation.set(POINTWISE_X, sum);
        operation.set(POINTWISE_B, bias);
        operation.set(POINTWISE_Y, whole);
    }

    ConvolutionKind kind_;
    bool is_last_;
    std::string op_;
    size_t count_;
    Attrs attrs_;
    StagedOperand staged_[4];
    int64_t bytes_[4] = {};
    bool is_padded_[4] = {};
    std::optional<Operand> bias_;
    bool has_fused_bias_ = true;
    KernelPtr add_bias_;
    std::vector<cudnn::PlanPtr> plans_;
    size_t chosen_ = 0;
    mutable std::vector<cudnn::PlanPtr> others_;  // of further devices; runs hold the GIL
};

/// Whether the result is to be made with channels that vary fastest: where it lies so, or where it lies both ways.
bool is_channels_last(const Request& r) {
    if (!lies_so(r.operands[0], true)) return false;
    if (!lies_so(r.operands[0], false)) return true;
    return std::any_of(r.operands.begin() + 1, r.operands.begin() + 3,
                       [](const Operand& o) { return lies_so(o, true) && !lies_so(o, false); });
}

/// How long a kernel takes, in milliseconds, the shortest of a few runs.
float time_of(const Kernel& kernel, char* const* data, cudaEvent_t begin, cudaEvent_t end) {
    constexpr int RUNS = 4;
    float best = 1e30f;
    for (int i = 0; i < RUNS; ++i) {
        float took = 0;
        check(cudaEventRecord(begin, stream_handle()), "timing a convolution");
        kernel.run(data, nullptr);
        check(cudaEventRecord(end, stream_handle()), "timing a convolution");
        check(cudaEventSynchronize(end), "timing a convolution");
        check(cudaEventElapsedTime(&took, begin, end), "timing a convolution");
        if (i > 0) best = std::min(best, took);
    }
    return best;
}

/// The fastest of cuDNN's first engines, in either layout.
KernelPtr fastest(ConvolutionKind kind, const Request& r, const Layout& layout, int device) {
    constexpr size_t ENGINES = 8;
    Stream& stream = current_stream(device);
    set_launch_stream(stream);
    bind(device);
    std::vector<std::unique_ptr<Scratch<>>> memory;
    char* data[4] = {};
    for (size_t i = 0; i < r.operands.size(); ++i) {
        const Operand& o = r.operands[i];
        int64_t extent = 1;
        for (size_t d = 0; d < o.shape.size(); ++d) extent += (o.shape[d] - 1) * o.strides[d];
        memory.push_back(std::make_unique<Scratch<>>(size_t(extent * size_of(o.dtype))));
        data[i] = memory.back()->data();
        check(cudaMemsetAsync(data[i], 0, size_t(extent * size_of(o.dtype)), stream.handle), "timing a convolution");
    }
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "timing a convolution");
    check(cudaEventCreate(&end), "timing a convolution");
    KernelPtr best;
    float least = 1e30f;
    for (const Layout& tried : {layout, Layout{!layout.is_last}}) {
        auto kernel = std::make_unique<CudnnConvolution>(kind, r, tried);
        if (!kernel->prepare(device, ENGINES)) continue;
        size_t which = 0;
        bool is_better = false;
        for (size_t i = 0; i < kernel->choices(); ++i) {
            kernel->choose(i);
            try {
                const float took = time_of(*kernel, data, begin, end);
                if (took < least) least = took, which = i, is_better = true;
            } catch (const std::exception&) {  // an engine that cannot run after all, or has no room to
                cudaGetLastError();
            }
        }
        kernel->choose(which);
        kernel->settle();
        if (is_better) best = std::move(kernel);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best;
}

constexpr int64_t LEAST_OF_GROUP = 8;                        // channels, for a product of each group
constexpr int64_t LEAST_IMAGES = 8, LEAST_PLACES = 1 << 11;  // for products of images, whose results are added

/// Whether our own kernels are faster, as measured on an H200.
bool is_ours(ConvolutionKind kind, const Request& r, const Moves& moves, bool is_last) {
    if (r.operands[0].shape.size() != 4) return false;
    const Sizes& weight = r.operands[PLACES[int(kind)][1]].shape;
    const bool is_single = moves.groups == 1 && moves.stride == Sizes{1, 1};
    const bool is_point = is_single && weight[2] == 1 && weight[3] == 1 && moves.before == Sizes{0, 0};
    if (is_half(r.operands[0].dtype)) return is_point && kind == ConvolutionKind::forward && !is_last;
    if (matmul::allows_tf32) return false;
    if (is_point) return true;
    if (kind == ConvolutionKind::forward || is_last) return false;
    // cuDNN's deterministic gradients with steps take up to 15 times as long as a product, those of signals with steps or
    // groups up to 40 times, and that of the weight of 7 x 7 windows 30 times.
    const Sizes& result = r.operands[PLACES[int(kind)][2]].shape;
    const bool is_signal = result[2] == 1 && weight[2] == 1;
    if (kind == ConvolutionKind::input_grad)
        return is_single || (is_signal ? weight[1] >= LEAST_OF_GROUP : moves.groups == 1);
    if (is_signal || moves.groups != 1) return false;
    const bool is_large = weight[2] * weight[3] > 9, has_many = result[0] * result[2] * result[3] >= LEAST_PLACES;
    return is_large || (!is_single && has_many && result[0] >= LEAST_IMAGES);
}

/// Whether cuDNN's gradient of the weight of 5 x 5 windows is what float32 asks for: on an H200 its errors were 1e-3 to 3e-3
/// of the result, hundreds of times those of a product, and no note of the engine says so.
bool is_precise(ConvolutionKind kind, const Request& r, const Moves& moves) {
    if (kind != ConvolutionKind::weight_grad || r.operands[0].dtype != DType::f32 || matmul::allows_tf32) return true;
    const Sizes& weight = r.operands[0].shape;
    return weight.size() != 4 || weight[2] != 5 || weight[3] != 5 || moves.stride != Sizes{1, 1};
}

/// What operands are copied to where that pays: tensor cores have no kernels for rows, nor for few channels.
Layout layout_of(ConvolutionKind kind, const Request& r, const Moves& moves) {
    const std::array<size_t, 3>& places = PLACES[int(kind)];
    const Sizes &image = r.operands[places[0]].shape, &weight = r.operands[places[1]].shape;
    const bool half = is_half(r.operands[0].dtype), is_large = std::any_of(weight.begin() + 2, weight.end(), [](auto n) { return n > 1; });
    const int64_t together = half ? 8 : 4;
    Layout out{is_channels_last(r)};
    if ((!half && !matmul::allows_tf32) || moves.groups != 1 || weight[0] % together) return out;
    const bool is_grad = kind == ConvolutionKind::input_grad;
    if (image[1] % together == 0) {
        out.is_last |= half ? is_large || !is_grad : is_large && kind != ConvolutionKind::weight_grad;
    } else if (image[1] < together && is_large && !is_grad && (half || out.is_last)) {
        // Of a single channel that pays where there is much else to take together.
        const bool is_line = weight.size() == 4 && (weight[2] == 1 || weight[3] == 1);
        if (image[1] == 1 && (is_line || kind == ConvolutionKind::weight_grad)) return out;
        out = {true, together};
    }
    return out;
}

}  // namespace

KernelPtr cudnn_convolution(ConvolutionKind kind, const Request& r) {
    const std::array<size_t, 3>& places = PLACES[int(kind)];
    const DType dtype = r.operands[0].dtype;
    if (!is_half(dtype) && dtype != DType::f32) return nullptr;
    for (const Operand& operand : r.operands)
        if (operand.dtype != dtype || operand.numel() == 0 || operand.is_scalar) return nullptr;
    if (r.operands.size() == 4 && r.operands[3].strides[0] != 1 && r.operands[3].shape[0] > 1) return nullptr;
    const Moves moves(r.attrs, r.operands[places[0]].shape, r.operands[places[1]].shape, r.operands[places[2]].shape);
    if (!moves.fits || !cudnn::is_usable() || !is_precise(kind, r, moves)) return nullptr;
    if (kind == ConvolutionKind::input_grad) {
        if (KernelPtr kernel = turned_convolution(r)) return kernel;
    }
    const int device = current_device();
    const Layout layout = layout_of(kind, r, moves);
    if (cudnn::settings.benchmarks && !is_recorded(current_stream(device))) return fastest(kind, r, layout, device);
    if (is_ours(kind, r, moves, is_channels_last(r))) return nullptr;
    for (const Layout& tried : {layout, Layout{is_channels_last(r)}}) {
        auto kernel = std::make_unique<CudnnConvolution>(kind, r, tried);
        if (kernel->prepare(device)) return kernel;
    }
    return nullptr;
}

}  // namespace norch::nn
