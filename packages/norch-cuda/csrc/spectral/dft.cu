// dft: Fourier transforms of any length whose factors suit a block; long ones are two of those, with turns between them.
#include <algorithm>
#include <cmath>

#include "runtime/allocator.h"
#include "runtime/families.h"
#include "spectral/transform.cuh"

namespace norch::spectral {
namespace {

constexpr int MOST_PRIME = 512;
constexpr size_t SHARED_BYTES = 96 << 10;  // that every GPU since Ampere gives a block

/// The passes of n points; false where a prime is too large.
bool find_passes(Transform& p) {
    int rest = p.n, span = 1;
    for (int radix = 16; rest > 1;) {
        for (; rest % radix == 0; rest /= radix) {
            if (p.passes == MAX_PASSES) return false;
            p.pass[p.passes++] = {radix, span, FastDivide(uint32_t(p.n / radix)), FastDivide(uint32_t(span))};
            span *= radix;
        }
        radix = radix > 2 && radix % 2 == 0 ? radix / 2 : radix == 2 ? 3 : radix + 2;
        if (radix > MOST_PRIME) return false;
    }
    return true;
}

/// How many points a block takes: 16 a thread, which have room in shared memory beside the roots.
template <class T>
constexpr int64_t most_points() {
    return sizeof(T) == 4 ? 4096 : 2048;
}

template <class T>
bool suits(int64_t n) {
    Transform p = {};
    p.n = int(n);
    return n <= most_points<T>() && find_passes(p);
}

/// One of two factors of n that suit a block, as equal as can be; 0 if there are none.
template <class T>
int64_t factor_of(int64_t n) {
    for (int64_t a = std::min(most_points<T>(), int64_t(std::sqrt(double(n)))); a > 1 && n / a <= most_points<T>(); --a)
        if (n % a == 0 && suits<T>(a) && suits<T>(n / a)) return a;
    return 0;
}

/// A launch for each piece of the rows.
template <class T>
class Stage {
public:
    Stage(const Transform& given, const Loops& rows) : transform_(given), pieces_(cut<2>(rows)) {
        Transform& p = transform_;
        find_passes(p);
        p.is_packed = p.in.is_real != p.out.is_real && rows.numel > 1;
        const bool is_across = p.in.is_across || p.out.is_across;
        int64_t most = std::min<int64_t>(MAX_ROWS, 16 * THREADS / p.n);
        const int64_t room = int64_t(SHARED_BYTES / sizeof(Number<T>)) - padded(p.n);
        p.pitch = padded(p.n) | 1;  // or the rows of one number would be of one bank
        while (most > 1 && most * p.pitch >= room) --most;
        p.together = together_of(ceil_div(rows.numel, p.is_packed ? 2 : 1), most, is_across);
        const bool halves = p.is_packed && p.out.is_real;
        p.in.count = halves ? p.n / 2 + 1 : p.n;
        p.out.count = int(std::min<int64_t>(p.n, ceil_div(int64_t(p.out.numbers), int64_t(p.out.step))));
        for (Side* side : {&p.in, &p.out})
            side->by = FastDivide(uint32_t(side->is_across ? p.together : side->count));
        shared_ = size_t(padded(p.n) + std::max(p.together * p.pitch, p.n / 16 + 17) + 1) * sizeof(Number<T>);
        kernel_ = p.is_plain() ? dft_kernel<T, true> : dft_kernel<T, false>;
        if (shared_ > (32 << 10))  // of the 48 KB that need no asking the kernel has some itself
            check(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, int(SHARED_BYTES)), "dft");
        int each = 0;  // blocks that a multiprocessor has at a time
        check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel_, THREADS, shared_), "dft");
        at_once_ = std::max(each, 1) * int64_t(multiprocessors());
    }

    void launch(char* out, const char* in, const char* window) const {
        for (const Piece<2>& piece : pieces_) {
            Transform p = transform_;
            p.rows = piece.layout;
            const int64_t blocks = ceil_div(int64_t(piece.layout.numel), int64_t(p.together) * (p.is_packed ? 2 : 1));
            const Grid grid{unsigned(std::min(blocks, at_once_)), THREADS, shared_};
            launch_kernel("dft", kernel_, grid, p, out + piece.start[0], in + piece.start[1], window);
        }
    }

private:
    /// How many rows a block takes so that the last to end does not take long; across, whole sectors of memory if it can.
    static int together_of(int64_t rows, int64_t most, bool is_across) {
        const int64_t slots = BLOCKS<T> * int64_t(multiprocessors());
        const int64_t step = is_across ? 8 : 1;
        int64_t found = 1, least = INT64_MAX;
        for (int64_t together = std::min<int64_t>(most, step); together <= most; together += step) {
            const int64_t time = ceil_div(ceil_div(rows, together), slots) * (together + 1);  // 1: for what a block begins with
            if (time < least) found = together, least = time;
        }
        return int(std::max<int64_t>(found, 1));
    }

    Transform transform_;
    std::vector<Piece<2>> pieces_;
    void (*kernel_)(Transform, char*, const char*, const char*);
    size_t shared_;
    int64_t at_once_;  // blocks
};

Side side_of(const Operand& operand, int64_t step) {
    const size_t nd = size_t(operand.ndim());
    const int64_t itemsize = size_of(operand.dtype);
    Side side = {};
    side.part = operand.strides[nd - 2] * itemsize, side.along = int(operand.strides[nd - 1] * itemsize * step);
    side.numbers = int(operand.shape[nd - 1]), side.step = int(step);
    side.is_real = operand.shape[nd - 2] == 1;
    return side;
}

void set_across(Transform& p, const Loops& rows) {
    if (rows.ndim() == 0) return;
    p.out.is_across = rows.strides[0].back() < p.out.along, p.in.is_across = rows.strides[1].back() < p.in.along;
}

/// Rows of a stage of a long transform: for each of `rows` one for each remainder, which lie `out` and `in` bytes apart.
Loops with_remainders(Loops rows, int64_t count, int64_t out, int64_t in) {
    rows.shape.push_back(count);
    rows.strides[0].push_back(out), rows.strides[1].push_back(in);
    rows.numel *= count;
    return rows;
}

template <class T>
KernelPtr make_dft(const Request& r, const Transform& given) {
    const Operand &out = r.operands[0], &in = r.operands[1];
    std::vector<int> lead(size_t(in.ndim() - 2));
    for (size_t d = 0; d < lead.size(); ++d) lead[d] = int(d);
    const int64_t n = given.whole;
    if (suits<T>(n)) {
        const Loops rows = collapse({out, in}, lead);
        Transform p = given;
        p.n = int(n);
        p.out = side_of(out, 1), p.in = side_of(in, 1);
        p.out.is_doubled = given.out.is_doubled, p.in.is_doubled = given.in.is_doubled;
        set_across(p, rows);
        const Stage<T> stage(p, rows);
        return make_kernel(0, [stage, has_window = p.window_step != 0](char* const* data, const Scalar*) {
            stage.launch(data[0], data[1], has_window ? data[2] : nullptr);
        });
    }
    const int64_t n1 = factor_of<T>(n), n2 = n1 ? n / n1 : 0;
    int64_t count = 1;
    for (int d : lead) count *= in.shape[size_t(d)];
    if (!n1 || count * n > int64_t(1) << 30) return nullptr;
    // Results of the first stage: real parts of all, then the imaginary ones; of a row by k1, and then by j2.
    Operand between = in;
    const size_t nd = size_t(in.ndim());
    int64_t stride = n;
    for (size_t d = nd - 2; d-- > 0; stride *= in.shape[d]) between.strides[d] = stride;
    between.shape[nd - 2] = 2, between.strides[nd - 2] = count * n;
    between.shape[nd - 1] = n, between.strides[nd - 1] = 1;
    const int64_t item = sizeof(T);
    Transform first = given, second = given;
    first.n = int(n1), second.n = int(n2);
    first.turns = true, first.scale = 1;
    first.in = side_of(in, n2), first.out = side_of(between, 1);
    first.in.is_doubled = given.in.is_doubled;
    first.out.along = int(n2 * item), first.out.numbers = int(n1);
    first.remainders = FastDivide(uint32_t(n2));
    const Loops first_rows =
        with_remainders(collapse({between, in}, lead), n2, item, in.strides[nd - 1] * item);
    set_across(first, first_rows);
    second.in = side_of(between, 1), second.out = side_of(out, n1);
    second.in.numbers = int(n2);
    second.out.is_doubled = given.out.is_doubled;
    second.windows_input = false;
    second.remainders = FastDivide(uint32_t(n1));
    const Loops second_rows =
        with_remainders(collapse({out, between}, lead), n1, out.strides[nd - 1] * item, n2 * item);
    set_across(second, second_rows);
    const Stage<T> one(first, first_rows), two(second, second_rows);
    const bool has_window = given.window_step != 0, windows_input = given.windows_input;
    return make_kernel(0, [=](char* const* data, const Scalar*) {
        const Scratch<T> parts(size_t(2 * count * n));
        char* const between = reinterpret_cast<char*>(parts.data());
        const char* window = has_window ? data[2] : nullptr;
        one.launch(between, data[1], windows_input ? window : nullptr);
        two.launch(data[0], between, windows_input ? nullptr : window);
    });
}

KernelPtr dft(const Request& r) {
    const Operand &out = r.operands[0], &in = r.operands[1];
    for (const Operand& operand : r.operands)
        if (operand.dtype != out.dtype) return nullptr;
    const int64_t n = r.attrs.integer("n");
    if ((out.dtype != DType::f32 && out.dtype != DType::f64) || n > int64_t(1) << 24 || out.numel() == 0) return nullptr;
    for (const Operand* operand : {&out, &in})
        if (operand->strides.back() * size_of(out.dtype) * n > INT32_MAX) return nullptr;
    Transform p = {};
    p.whole = int(n);
    p.is_forward = r.attrs.integer("sign") < 0;
    p.scale = r.attrs.number("scale");
    const bool reads_real = in.shape[size_t(in.ndim()) - 2] == 1, gives_real = out.shape[size_t(out.ndim()) - 2] == 1;
    if (r.attrs.flag("doubled")) p.in.is_doubled = !reads_real && gives_real, p.out.is_doubled = reads_real && !gives_real;
    if (r.operands.size() > 2) {
        p.window_step = r.operands[2].strides[0] * size_of(out.dtype);
        p.windows_input = reads_real;
        if (!p.window_step) return nullptr;
    }
    return out.dtype == DType::f32 ? make_dft<float>(r, p) : make_dft<double>(r, p);
}

}  // namespace

void add_fourier(Registry& registry) { registry["dft"] = dft; }

}  // namespace norch::spectral
