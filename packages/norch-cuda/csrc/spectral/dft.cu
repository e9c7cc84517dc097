// dft: Fourier transforms in shared memory, of some rows a block: passes of radix 4, 2 and odd primes, each from one array
// to another in the order that the next reads (N. Govindaraju et al., "High performance discrete Fourier transforms on
// graphics processors", 2008). Where products may be tf32 core cuts longer ones into these.
#include <algorithm>

#include "common/layout.h"
#include "runtime/device.cuh"
#include "runtime/families.h"

namespace norch::spectral {
namespace {

constexpr int64_t MOST_POINTS = 4096, MOST_PRIME = 512;
constexpr int MAX_PASSES = 12, MAX_ROWS = 16;
constexpr size_t SHARED_BYTES = 96 << 10;  // that every GPU since Ampere gives a block

template <class T>
struct alignas(2 * sizeof(T)) Number {
    T re, im;
};
template <class T>
__device__ inline Number<T> operator+(Number<T> a, Number<T> b) {
    return {a.re + b.re, a.im + b.im};
}
template <class T>
__device__ inline Number<T> operator-(Number<T> a, Number<T> b) {
    return {a.re - b.re, a.im - b.im};
}
template <class T>
__device__ inline Number<T> operator*(Number<T> a, Number<T> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/// Whose parts lie `part` bytes apart, and whose numbers `along`.
struct Side {
    int64_t part, along;
    int numbers;      // that there are; others of n are 0, or not wanted
    bool is_real;
    bool is_doubled;  // numbers but those of 0 and n / 2 count twice
    bool is_across;   // whether rows lie closer together than the numbers of one
};

struct Transform {
    Layout<2> rows;  // of the result and of the input
    Side out, in;
    int n, together, passes, radix[MAX_PASSES];
    bool is_forward;
    double scale;
    int64_t window_step;  // of weights of the real numbers; no window: 0 and a null pointer
    bool windows_input;
};

__device__ inline bool counts_twice(const Side& side, int n, int k) { return side.is_doubled && k > 0 && 2 * k != n; }

/// Calls body(row, k) for all numbers of a block's rows, neighbours for neighbours in memory.
template <class F>
__device__ inline void each_number(const Side& side, int rows, const F& body) {
    for (int e = threadIdx.x; e < rows * side.numbers; e += THREADS) {
        if (side.is_across) body(e % rows, e / rows);
        else body(e / side.numbers, e % side.numbers);
    }
}

/// One pass over a block's rows: to spans of `radix` times as many numbers.
template <class T>
__device__ inline void pass_over(const Transform& p, int radix, int span, const Number<T>* roots, const Number<T>* from,
                                 Number<T>* to, int rows) {
    const int n = p.n, apart = n / radix, turn = apart / span;
    if (radix > 4) {  // a thread for each sum
        for (int e = threadIdx.x; e < rows * n; e += THREADS) {
            const int row = e / n, o = e - row * n, k = o % span, q = o / span % radix, group = o / (span * radix);
            const Number<T>* in = from + row * n + group * span + k;
            const int step = (k * turn + q * apart) % n;
            Number<T> sum = *in;
            for (int i = 1, at = step; i < radix; ++i) {
                sum = sum + in[i * apart] * roots[at];
                at += step;
                if (at >= n) at -= n;
            }
            to[e] = sum;
        }
        return;
    }
    for (int e = threadIdx.x; e < rows * apart; e += THREADS) {
        const int row = e / apart, t = e - row * apart, k = t % span;
        const Number<T>* in = from + row * n + t;
        Number<T>* out = to + row * n + (t - k) * radix + k;
        if (radix == 2) {
            const Number<T> a = in[0], b = in[apart] * roots[k * turn];
            out[0] = a + b, out[span] = a - b;
        } else if (radix == 3) {
            const Number<T> a = in[0], b = in[apart] * roots[k * turn], c = in[2 * apart] * roots[2 * k * turn];
            out[0] = a + b + c;
            out[span] = a + b * roots[apart] + c * roots[2 * apart];
            out[2 * span] = a + b * roots[2 * apart] + c * roots[apart];
        } else {
            const Number<T> a = in[0], b = in[apart] * roots[k * turn];
            const Number<T> c = in[2 * apart] * roots[2 * k * turn], d = in[3 * apart] * roots[3 * k * turn];
            const Number<T> ac = a + c, bd = b + d, minus = a - c, other = b - d;
            const Number<T> turned = p.is_forward ? Number<T>{other.im, -other.re} : Number<T>{-other.im, other.re};
            out[0] = ac + bd, out[span] = minus + turned;
            out[2 * span] = ac - bd, out[3 * span] = minus - turned;
        }
    }
}

__device__ inline void turn_of(float half_turns, float* sine, float* cosine) { sincospif(half_turns, sine, cosine); }
__device__ inline void turn_of(double half_turns, double* sine, double* cosine) { sincospi(half_turns, sine, cosine); }

template <class T>
__global__ void __launch_bounds__(THREADS) dft_kernel(const __grid_constant__ Transform p, char* out, const char* in,
                                                      const char* window) {
    extern __shared__ double shared[];
    __shared__ int64_t starts[MAX_ROWS][2];
    const int n = p.n, rows = min(p.together, int(p.rows.numel - blockIdx.x * p.together));
    Number<T>* const roots = reinterpret_cast<Number<T>*>(shared);
    Number<T>* from = roots + n;
    Number<T>* to = from + p.together * n;
    if (int(threadIdx.x) < rows) p.rows.offsets(blockIdx.x * p.together + threadIdx.x, starts[threadIdx.x]);
    for (int k = threadIdx.x; k < n; k += THREADS) {
        turn_of(T(2 * k) / T(n), &roots[k].im, &roots[k].re);
        if (p.is_forward) roots[k].im = -roots[k].im;
    }
    __syncthreads();
    Side given = p.in;
    given.numbers = n;
    each_number(given, rows, [&](int row, int j) {
        Number<T> value = {T(0), T(0)};
        if (j < p.in.numbers) {
            const char* at = in + starts[row][1] + j * p.in.along;
            value.re = *reinterpret_cast<const T*>(at);
            if (!p.in.is_real) value.im = *reinterpret_cast<const T*>(at + p.in.part);
            if (p.windows_input) value.re *= *reinterpret_cast<const T*>(window + j * p.window_step);
            if (counts_twice(p.in, n, j)) value = value + value;
        }
        from[row * n + j] = value;
    });
    for (int pass = 0, span = 1; pass < p.passes; ++pass) {
        __syncthreads();
        pass_over(p, p.radix[pass], span, roots, from, to, rows);
        span *= p.radix[pass];
        Number<T>* const swapped = from;
        from = to, to = swapped;
    }
    __syncthreads();
    each_number(p.out, rows, [&](int row, int k) {
        const Number<T> value = from[row * n + k];
        T factor = T(p.scale);
        if (counts_twice(p.out, n, k)) factor *= T(2);
        if (window && !p.windows_input) factor *= *reinterpret_cast<const T*>(window + k * p.window_step);
        char* at = out + starts[row][0] + k * p.out.along;
        *reinterpret_cast<T*>(at) = value.re * factor;
        if (!p.out.is_real) *reinterpret_cast<T*>(at + p.out.part) = value.im * factor;
    });
}

Side side_of(const Operand& operand, const Loops& rows, int which) {
    const size_t nd = size_t(operand.ndim());
    const int64_t itemsize = size_of(operand.dtype);
    Side side = {operand.strides[nd - 2] * itemsize, operand.strides[nd - 1] * itemsize, int(operand.shape[nd - 1]),
                 operand.shape[nd - 2] == 1};
    side.is_across = rows.ndim() > 0 && rows.strides[size_t(which)].back() < side.along;
    return side;
}

/// The radices of n points; false where one is too large.
bool find_radices(Transform& p) {
    int64_t rest = p.n;
    for (int64_t radix = 4; rest > 1; radix = radix == 4 ? 2 : radix == 2 ? 3 : radix + 2) {
        for (; rest % radix == 0; rest /= radix) p.radix[p.passes++] = int(radix);
        if (radix > MOST_PRIME) return false;
    }
    return true;
}

template <class T>
class Fourier final : public Kernel {
public:
    Fourier(const Transform& transform, const Loops& rows) : transform_(transform), pieces_(cut<2>(rows)) {
        const size_t row = size_t(2 * transform.n) * sizeof(Number<T>), roots = row / 2;
        const bool is_across = transform.in.is_across || transform.out.is_across;
        int64_t together = is_across ? MAX_ROWS : std::max(1, 1024 / transform.n);
        together = std::min({together, int64_t(MAX_ROWS), int64_t((SHARED_BYTES - roots) / row), rows.numel});
        transform_.together = int(std::max<int64_t>(1, together));
        shared_ = roots + size_t(transform_.together) * row;
        if (shared_ > (32 << 10))  // of the 48 KB that need no asking the kernel has some itself
            check(cudaFuncSetAttribute(dft_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(SHARED_BYTES)), "dft");
    }

    void run(char* const* data, const Scalar*) const override {
        const char* window = transform_.window_step ? data[2] : nullptr;
        for (const Piece<2>& piece : pieces_) {
            Transform transform = transform_;
            transform.rows = piece.layout;
            const Grid grid{unsigned(ceil_div(piece.layout.numel, transform.together)), THREADS, shared_};
            launch_kernel("dft", dft_kernel<T>, grid, transform, data[0] + piece.start[0], data[1] + piece.start[1], window);
        }
    }

private:
    Transform transform_;
    std::vector<Piece<2>> pieces_;
    size_t shared_;
};

KernelPtr dft(const Request& r) {
    const Operand &out = r.operands[0], &in = r.operands[1];
    for (const Operand& operand : r.operands)
        if (operand.dtype != out.dtype) return nullptr;
    const int64_t n = r.attrs.integer("n"), itemsize = size_of(out.dtype);
    if (!is_floating(out.dtype) || itemsize < 4 || n > MOST_POINTS || 3 * n * 2 * itemsize > int64_t(SHARED_BYTES)) return nullptr;
    std::vector<int> lead(size_t(in.ndim() - 2));
    for (size_t d = 0; d < lead.size(); ++d) lead[d] = int(d);
    const Loops rows = collapse({out, in}, lead);
    Transform transform = {};
    transform.n = int(n);
    transform.out = side_of(out, rows, 0), transform.in = side_of(in, rows, 1);
    transform.is_forward = r.attrs.integer("sign") < 0;
    transform.scale = r.attrs.number("scale");
    if (r.attrs.flag("doubled")) {
        transform.in.is_doubled = !transform.in.is_real && transform.out.is_real;
        transform.out.is_doubled = transform.in.is_real && !transform.out.is_real;
    }
    if (r.operands.size() > 2) {
        transform.window_step = r.operands[2].strides[0] * itemsize;
        transform.windows_input = transform.in.is_real;
        if (!transform.window_step) return nullptr;
    }
    if (!find_radices(transform) || out.numel() == 0) return nullptr;
    if (out.dtype == DType::f32) return std::make_unique<Fourier<float>>(transform, rows);
    return std::make_unique<Fourier<double>>(transform, rows);
}

}  // namespace

void add_fourier(Registry& registry) { registry["dft"] = dft; }

}  // namespace norch::spectral
