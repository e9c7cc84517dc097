#include "matmul/cublaslt.h"

#include <library_types.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/allocator.h"
#include "runtime/library.h"
#include "runtime/runtime.h"

namespace norch::matmul {

bool allows_tf32 = false, tries_out = false;
Sums allowed_sums;

namespace {

constexpr uint64_t WORKSPACE = uint64_t(32) << 20;
constexpr double LARGE = double(1 << 28);  // multiplications, from which a product is worth to be tried out
constexpr int TRIED = 8, REPEATS = 4;      // algorithms, and how often each

// --- The part of cuBLASLt's interface that is used ------------------------------------------------------------------

using Status = int;
using Handle = void*;
struct Algorithm {
    uint64_t data[8];
};
struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    Status state;
    float waves;
    int reserved[4];
};

enum ComputeType { COMPUTE_16F = 64, COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32F_FAST_TF32 = 77 };
enum DescAttribute { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8 };
enum Taken { TAKEN = 0, TAKEN_TRANSPOSED = 1, TAKEN_ADJOINT = 2 };
enum LayoutAttribute { LAYOUT_BATCH_COUNT = 5, LAYOUT_STRIDED_BATCH_OFFSET = 6 };
enum PreferenceAttribute {
    PREF_MAX_WORKSPACE_BYTES = 1,
    PREF_REDUCTION_SCHEME_MASK = 3,
    PREF_MIN_ALIGNMENT_A_BYTES = 5,
    PREF_MIN_ALIGNMENT_D_BYTES = 8,
};
enum Epilogue { EPILOGUE_DEFAULT = 1, EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4 };
constexpr uint32_t REDUCTION_COMPUTE_TYPE = 2;

struct Functions {
    Status (*create)(Handle*);
    Status (*matmul)(Handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                     void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                     const Algorithm* algorithm, void* workspace, size_t workspace_bytes, cudaStream_t stream);
    Status (*heuristic)(Handle, void* desc, void* a_layout, void* b_layout, void* c_layout, void* d_layout,
                        void* preference, int requested, Heuristic* results, int* returned);
    Status (*desc_create)(void** desc, int compute_type, int scale_type);
    Status (*desc_destroy)(void* desc);
    Status (*desc_set)(void* desc, int attribute, const void* value, size_t bytes);
    Status (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
    Status (*layout_destroy)(void* layout);
    Status (*layout_set)(void* layout, int attribute, const void* value, size_t bytes);
    Status (*preference_create)(void** preference);
    Status (*preference_destroy)(void* preference);
    Status (*preference_set)(void* preference, int attribute, const void* value, size_t bytes);
};

Functions load_functions() {
    const Library from("cublasLt", "libcublasLt.so.13", "matrix products", "nvidia-cublas");
    Functions out;
    auto get = [&](auto& function, const char* name) { from.get(function, name); };
    get(out.create, "cublasLtCreate");
    get(out.matmul, "cublasLtMatmul");
    get(out.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    get(out.desc_create, "cublasLtMatmulDescCreate");
    get(out.desc_destroy, "cublasLtMatmulDescDestroy");
    get(out.desc_set, "cublasLtMatmulDescSetAttribute");
    get(out.layout_create, "cublasLtMatrixLayoutCreate");
    get(out.layout_destroy, "cublasLtMatrixLayoutDestroy");
    get(out.layout_set, "cublasLtMatrixLayoutSetAttribute");
    get(out.preference_create, "cublasLtMatmulPreferenceCreate");
    get(out.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    get(out.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    return out;
}

const Functions& library() {
    static const Functions loaded = load_functions();
    return loaded;
}

void check_status(Status status, const char* what) {
    if (status == 0) return;
    throw std::runtime_error(std::string("cuBLASLt failed ") + what + ": status " + std::to_string(status));
}

Handle handle_of(int device) {
    static std::vector<Handle> handles;
    if (handles.size() <= size_t(device)) handles.resize(size_t(device) + 1);
    Handle& handle = handles[size_t(device)];
    if (!handle) {
        RelaxedCapture relaxed;
        check_status(library().create(&handle), "to start");
    }
    return handle;
}

int type_of(DType dtype, bool is_complex = false) {
    switch (dtype) {
        case DType::f64: return is_complex ? CUDA_C_64F : CUDA_R_64F;
        case DType::f32: return is_complex ? CUDA_C_32F : CUDA_R_32F;
        case DType::f16: return CUDA_R_16F;
        default: return CUDA_R_16BF;
    }
}

/// The largest power of two, at most 256, that divides an address; what is between 16 and 256 counts as 16.
unsigned alignment_of(uintptr_t address) {
    const unsigned power = unsigned(address & -address) & 511;
    return power == 0 || power >= 256 ? 256 : std::min(power, 16u);
}

}  // namespace

// cuBLASLt's matrices are column-major: what it computes is the transpose, out' = b' @ a'.
struct Gemm::Descriptors {
    void *desc = nullptr, *first = nullptr, *second = nullptr, *out = nullptr;

    ~Descriptors() {
        const Functions& lt = library();
        if (desc) lt.desc_destroy(desc);
        for (void* layout : {first, second, out})
            if (layout) lt.layout_destroy(layout);
    }
};

struct Gemm::Choice {
    int device;
    unsigned alignment;
    bool is_found;
    Algorithm algorithm;
    size_t workspace;
};

/// Where the operands lie.
struct Gemm::Run {
    const Stream& stream;
    char* to;
    const char *left, *right;
};

void Gemm::describe() const {
    const Functions& lt = library();
    auto descriptors = std::make_shared<Descriptors>();
    const int type = type_of(dtype, is_complex);
    const int scale = sums_float16() ? CUDA_R_16F : type_of(is_half(dtype) ? DType::f32 : dtype, is_complex);
    const int compute = dtype == DType::f64                ? COMPUTE_64F
                        : sums_float16()                   ? COMPUTE_16F
                        : dtype == DType::f32 && uses_tf32 ? COMPUTE_32F_FAST_TF32
                                                           : COMPUTE_32F;
    check_status(lt.desc_create(&descriptors->desc, compute, scale), "to describe a product");
    auto set = [&](int attribute, int32_t value) {
        check_status(lt.desc_set(descriptors->desc, attribute, &value, sizeof value), "to describe a product");
    };
    const auto taken = [](const GemmOperand& o) {
        return !o.is_transposed ? TAKEN : o.is_conjugate ? TAKEN_ADJOINT : TAKEN_TRANSPOSED;
    };
    set(DESC_TRANSA, taken(b));
    set(DESC_TRANSB, taken(a));
    if (has_bias || has_relu)
        set(DESC_EPILOGUE, (has_bias ? EPILOGUE_BIAS : 0) | (has_relu ? EPILOGUE_RELU : 0));
    auto add = [&](void*& layout, const GemmOperand& o, int64_t rows, int64_t columns) {
        if (o.is_transposed) std::swap(rows, columns);
        check_status(lt.layout_create(&layout, type, uint64_t(columns), uint64_t(rows), o.ld), "to describe a matrix");
        if (batch == 1) return;
        const int32_t count = int32_t(batch);
        check_status(lt.layout_set(layout, LAYOUT_BATCH_COUNT, &count, sizeof count), "to describe a batch");
        check_status(lt.layout_set(layout, LAYOUT_STRIDED_BATCH_OFFSET, &o.step, sizeof o.step), "to describe a batch");
    };
    add(descriptors->first, b, k, n);
    add(descriptors->second, a, m, k);
    add(descriptors->out, out, m, n);
    descriptors_ = std::move(descriptors);
}

/// What cuBLASLt takes to be the fastest, in order.
std::vector<Gemm::Choice> Gemm::candidates(int device, unsigned alignment, int count) const {
    const Functions& lt = library();
    RelaxedCapture relaxed;
    void* preference = nullptr;
    check_status(lt.preference_create(&preference), "to choose an algorithm");
    lt.preference_set(preference, PREF_MAX_WORKSPACE_BYTES, &WORKSPACE, sizeof WORKSPACE);
    for (int which = PREF_MIN_ALIGNMENT_A_BYTES; which <= PREF_MIN_ALIGNMENT_D_BYTES; ++which)
        lt.preference_set(preference, which, &alignment, sizeof alignment);
    // Partial sums of 16-bit products stay in float32 unless the user allows otherwise.
    if (is_half(dtype) && !(dtype == DType::f16 ? sums.float16 || sums.float16_throughout : sums.bfloat16))
        lt.preference_set(preference, PREF_REDUCTION_SCHEME_MASK, &REDUCTION_COMPUTE_TYPE, sizeof(uint32_t));
    std::vector<Heuristic> found(static_cast<size_t>(count));
    const Descriptors& d = *descriptors_;
    const Status status = lt.heuristic(handle_of(device), d.desc, d.first, d.second, d.out, d.out, preference, count,
                                       found.data(), &count);
    lt.preference_destroy(preference);
    std::vector<Choice> out;
    for (int i = 0; status == 0 && i < count; ++i)
        if (found[size_t(i)].state == 0)
            out.push_back({device, alignment, true, found[size_t(i)].algorithm, found[size_t(i)].workspace});
    if (out.empty()) out.push_back({device, alignment, false, {}, 0});
    return out;
}

std::vector<int64_t> Gemm::key(int device, unsigned alignment) const {
    std::vector<int64_t> out = {device, alignment, int(dtype), is_complex, m, n, k, batch, has_bias, has_relu, uses_tf32,
                                sums.float16, sums.bfloat16, sums.float16_throughout};
    for (const GemmOperand& o : {this->out, a, b})
        out.insert(out.end(), {o.is_transposed + o.is_conjugate, o.ld, o.step});
    return out;
}

/// The fastest of the first candidates: of a shape once, for all products of it.
Gemm::Choice Gemm::fastest(const Run& run, unsigned alignment) const {
    static std::map<std::vector<int64_t>, Choice> known;
    const std::vector<int64_t> shape = key(run.stream.device, alignment);
    if (auto found = known.find(shape); found != known.end()) return found->second;
    if (is_recorded(run.stream) || launch_notes) return candidates(run.stream.device, alignment, 1)[0];
    std::vector<Choice> all = candidates(run.stream.device, alignment, TRIED);
    const Choice* best = &all[0];
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "creating an event");
    check(cudaEventCreate(&end), "creating an event");
    float least = INFINITY;
    for (const Choice& choice : all) {
        if (!choice.is_found) continue;
        launch(run, choice);
        for (int turn = 0; turn < 2; ++turn) {
            float taken = 0;
            cudaEventRecord(begin, run.stream.handle);
            for (int i = 0; i < REPEATS; ++i) launch(run, choice);
            cudaEventRecord(end, run.stream.handle);
            if (cudaEventSynchronize(end) != cudaSuccess || cudaEventElapsedTime(&taken, begin, end) != cudaSuccess) continue;
            if (taken < least) least = taken, best = &choice;
        }
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return known.emplace(shape, *best).first->second;
}

const Gemm::Choice& Gemm::choose(const Run& run, unsigned alignment) const {
    if (!choices_) choices_ = std::make_shared<std::vector<Choice>>();
    const int device = run.stream.device;
    for (const Choice& choice : *choices_)
        if (choice.device == device && choice.alignment == alignment) return choice;
    const bool is_large = double(m) * double(n) * double(k) * double(batch) >= LARGE;
    choices_->push_back(tries_out && is_large ? fastest(run, alignment) : candidates(device, alignment, 1)[0]);
    return choices_->back();
}

void Gemm::launch(const Run& run, const Choice& choice) const {
    const Functions& lt = library();
    const Descriptors& d = *descriptors_;
    std::optional<Scratch<>> workspace;
    if (choice.workspace) workspace.emplace(choice.workspace);
    const double one64[] = {1, 0}, zero64[] = {0, 0};  // with an imaginary part, for complex numbers
    const float one32[] = {1, 0}, zero32[] = {0, 0};
    const uint16_t one16 = 0x3C00, zero16 = 0;
    const bool is_64 = dtype == DType::f64, is_16 = sums_float16();
    const void* alpha = is_64 ? static_cast<const void*>(one64) : is_16 ? static_cast<const void*>(&one16) : one32;
    const void* beta = is_64 ? static_cast<const void*>(zero64) : is_16 ? static_cast<const void*>(&zero16) : zero32;
    check_status(lt.matmul(handle_of(run.stream.device), d.desc, alpha, run.right, d.first, run.left, d.second, beta,
                           run.to, d.out, run.to, d.out, &choice.algorithm, workspace ? workspace->data() : nullptr,
                           choice.workspace, stream_handle()),
                 "to multiply matrices");
}

bool Gemm::run(char* to, const char* left, const char* right, const char* bias) const {
    const Functions& lt = library();
    const Stream& stream = launch_stream();
    if (!descriptors_) describe();
    const Descriptors& d = *descriptors_;
    if (has_bias) lt.desc_set(d.desc, DESC_BIAS_POINTER, &bias, sizeof bias);
    const uintptr_t all = uintptr_t(to) | uintptr_t(left) | uintptr_t(right) | uintptr_t(bias);
    const Run run{stream, to, left, right};
    const Choice& choice = choose(run, alignment_of(all));
    if (!choice.is_found) return false;
    launch(run, choice);
    return true;
}

}  // namespace norch::matmul
