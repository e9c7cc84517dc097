// dft: Fourier transforms along the last dim. Several rows are the lanes of vectors; a long row, or one of few, is cut in
// two, and its columns are (Bailey, 1990). Real numbers are taken for half as many complex ones.
#include <algorithm>
#include <cmath>

#include "common/layout.h"
#include "nn/fourier.h"
#include "nn/row_lanes.h"
#include "runtime/allocator.h"
#include "runtime/families.h"
#include "runtime/parallel.h"

namespace norch::nn {
namespace {

constexpr int64_t IN_LANES = 1 << 17;  // bytes that the numbers of all lanes may take: they should stay in the cache

template <class E>
struct Complex {
    E re, im;
};

/// Numbers in vectors, one of each row; of all rows real parts lie before imaginary ones.
template <class T>
struct LaneNumbers {
    static constexpr int L = SIMD_WIDTH<T>;
    using E = vector_t<T, L>;
    T* z;
    NORCH_INLINE Complex<E> get(int64_t i) const { return {load_vector<L>(z + i * 2 * L), load_vector<L>(z + i * 2 * L + L)}; }
    NORCH_INLINE void set(int64_t i, Complex<E> v) const {
        store_vector(z + i * 2 * L, v.re);
        store_vector(z + i * 2 * L + L, v.im);
    }
};

/// Numbers of one row.
template <class T>
struct Planes {
    using E = T;
    T *re, *im;
    NORCH_INLINE Complex<E> get(int64_t i) const { return {re[i], im[i]}; }
    NORCH_INLINE void set(int64_t i, Complex<E> v) const { re[i] = v.re, im[i] = v.im; }
};

/// What a kernel was asked for: see `dft` of norch.
struct Wanted {
    int64_t n, size, count, inputs, outputs;
    bool forward, doubled;
    double scale;

    bool is_halved() const { return inputs != outputs && n % 2 == 0; }  // two real numbers as one
    int64_t points() const { return is_halved() ? n / 2 : n; }
    /// Numbers that there must be room for: a spectrum of real numbers has one more, or comes whole.
    int64_t room() const { return std::max(points(), inputs == 2 ? size : 0) + 1; }
};

/// From the transform of n / 2 numbers that stand for two real ones each to that of these. at(k): where number k is.
template <class T, class Numbers, class At>
NORCH_INLINE void finish_halved(const Wanted& w, const FourierTables<T>& tables, const Numbers& z, const At& at) {
    using E = typename Numbers::E;
    const int64_t m = w.points();
    const T whole = T(w.scale), half = T(w.doubled ? w.scale : w.scale / 2), *turns = tables.half_turns.data();
    const Complex<E> first = z.get(0);
    z.set(0, {(first.re + first.im) * whole, E{}});
    z.set(m, {(first.re - first.im) * whole, E{}});
    for (int64_t k = 1; k <= m / 2; ++k) {
        const int64_t i = at(k), j = at(m - k);
        const Complex<E> a = z.get(i), b = z.get(j);
        const E sr = a.re + b.re, si = a.im - b.im, dr = a.re - b.re, di = a.im + b.im;
        const E x = turns[2 * k] * di + turns[2 * k + 1] * dr, y = turns[2 * k] * dr - turns[2 * k + 1] * di;
        z.set(i, {(sr + x) * half, (si - y) * half});
        z.set(j, {(sr - x) * half, (-si - y) * half});
    }
}

/// Makes the spectrum of real numbers of what was given, of which real parts are wanted: and of it, for an even n, the
/// numbers whose transform is two real ones each.
template <class T, class Numbers>
NORCH_INLINE void start_real(const Wanted& w, const FourierTables<T>& tables, const Numbers& z) {
    using E = typename Numbers::E;
    const T whole = T(w.scale), half = T(w.doubled ? w.scale : w.scale / 2), sign = w.forward ? T(1) : T(-1);
    const auto at = [&](int64_t j) NORCH_INLINE_LAMBDA -> Complex<E> {
        const Complex<E> v = z.get(j);
        if (j == 0 || 2 * j == w.n) return {v.re * whole, E{}};
        if (w.n - j >= w.size) return {v.re * half, v.im * (half * sign)};
        const Complex<E> other = z.get(w.n - j);
        return {(v.re + other.re) * half, (v.im - other.im) * (half * sign)};
    };
    if (w.n % 2) {
        z.set(0, at(0));
        for (int64_t j = 1; j <= w.n / 2; ++j) {
            const Complex<E> v = at(j);
            z.set(j, v);
            z.set(w.n - j, {v.re, -v.im});
        }
        return;
    }
    const int64_t m = w.n / 2;
    const T* const turns = tables.half_turns.data();
    const E zeroth = at(0).re, middle = at(m).re;
    z.set(0, {zeroth + middle, zeroth - middle});
    for (int64_t j = 1; j <= m / 2; ++j) {
        const Complex<E> a = at(j), b = at(m - j);
        const E sr = a.re + b.re, si = a.im - b.im, dr = a.re - b.re, di = a.im + b.im;
        const E x = turns[2 * j] * di + turns[2 * j + 1] * dr, y = turns[2 * j] * dr - turns[2 * j + 1] * di;
        z.set(j, {sr - x, si + y});
        z.set(m - j, {sr + x, y - si});
    }
}

/// The rows of a block: where the parts of each begin.
template <class T>
struct Block {
    RowLanes<T> in[2], out[2];
};

/// Rows as lanes. `z`: room for w.room() numbers.
template <class T>
void transform_block(const Wanted& w, const FourierTables<T>& tables, const Block<T>& block, const T* window, T* z) {
    constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    const LaneNumbers<T> numbers{z};
    const int64_t* const places = tables.places.data();
    // A transform back is one forth with real and imaginary parts exchanged.
    const bool exchanged = w.inputs == w.outputs && !w.forward;
    const int64_t step = w.inputs == 1 && w.is_halved() ? L : 2 * L;
    for (int64_t part = 0; part < w.inputs; ++part) {
        T* const to = z + (part ^ int64_t(exchanged)) * L;
        if (w.inputs == 1 && window)
            block.in[part].read(w.size, [&](int64_t j, V v) NORCH_INLINE_LAMBDA { store_vector(to + j * step, v * window[j]); });
        else block.in[part].read(w.size, [&](int64_t j, V v) NORCH_INLINE_LAMBDA { store_vector(to + j * step, v); });
    }
    if (step == L) {
        std::fill(z + w.size * L, z + w.n * L, T(0));
    } else {
        if (w.inputs == 1)
            for (int64_t j = 0; j < w.size; ++j) store_vector(z + j * 2 * L + L, V{});
        if (w.size < w.room()) std::fill(z + w.size * 2 * L, z + w.room() * 2 * L, T(0));
    }
    if (w.outputs < w.inputs) start_real(w, tables, numbers);
    transform_lanes(tables, z);
    if (w.outputs < w.inputs) {
        const auto get = [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(z + (w.is_halved() ? places[k / 2] * 2 * L + k % 2 * L : places[k] * 2 * L));
        };
        if (window) block.out[0].write(w.count, [&](int64_t k) NORCH_INLINE_LAMBDA { return get(k) * window[k]; });
        else block.out[0].write(w.count, get);
        return;
    }
    const bool is_spectrum = w.inputs == 1;
    if (w.is_halved()) finish_halved(w, tables, numbers, [=](int64_t k) NORCH_INLINE_LAMBDA { return places[k]; });
    const T scale = w.is_halved() ? T(1) : T(w.scale);
    // Of a halved one the results beyond the middle are the conjugates of those before.
    const int64_t m = w.points(), whole = w.is_halved() ? std::min(w.count, m + 1) : w.count;
    for (int64_t part = 0; part < w.outputs; ++part) {
        const T* const from = z + (part ^ int64_t(exchanged)) * L;
        const T factor = is_spectrum && part && !w.forward ? -scale : scale, later = w.doubled && !w.is_halved() ? factor * 2 : factor;
        RowLanes<T> out = block.out[part];
        out.write(whole, [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(from + (k < m ? places[k] : k) * 2 * L) * (k ? later : factor);
        });
        if (whole == w.count) continue;
        for (T*& at : out.at) at += whole * out.along;
        const T other = part ? -factor : factor;
        out.write(w.count - whole, [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(from + places[w.n - whole - k] * 2 * L) * other;
        });
    }
}

// --- One row -----------------------------------------------------------------------------------------------------------

/// A transform of rows * columns numbers: by columns, then, turned, by rows.
template <class T>
struct Cut {
    int64_t rows = 0, columns = 0;
    std::shared_ptr<const FourierTables<T>> of_columns, of_rows;
    std::vector<T> starts, steps;  // the turns of row k: of each block of columns, and within it

    explicit Cut(int64_t n) {
        constexpr int L = SIMD_WIDTH<T>;
        for (int64_t d = int64_t(std::sqrt(double(n))); d >= L / 2 && !rows; --d)
            if (n % d == 0) rows = d, columns = n / d;
        if (!rows) return;
        of_columns = FourierTables<T>::of(rows);
        of_rows = FourierTables<T>::of(columns);
        const auto put = [](std::vector<T>& to, int64_t at, Root root, int64_t apart) {
            to[size_t(at)] = T(root.re);
            to[size_t(at + apart)] = T(root.im);
        };
        starts.resize(size_t(2 * rows * ((columns + L - 1) / L)));
        steps.resize(size_t(2 * rows * L));
        for (int64_t k = 0; k < rows; ++k) {
            for (int64_t c = 0; c < columns; c += L) put(starts, 2 * (c / L * rows + k), Root(c * k % n, n), 1);
            for (int64_t l = 0; l < L; ++l) put(steps, k * 2 * L + l, Root(l * k % n, n), L);
        }
    }

    int64_t room() const { return std::max(rows, columns) * 2 * SIMD_WIDTH<T>; }

    /// A column's or row's share of the work, about.
    static double ns(int64_t size) { return double(size) * (3 + std::log2(double(size))) * 0.15 * sizeof(T); }

    void run(Planes<T> in, Planes<T> between, Planes<T> out) const {
        constexpr int L = SIMD_WIDTH<T>;
        using V = vector_t<T, L>;
        parallel_for((columns + L - 1) / L, ns(rows), [&](int64_t begin, int64_t end) {
            const Scratch<T> z(rows * 2 * L);
            for (int64_t block = begin; block < end; ++block) {
                const int64_t first = block * L, width = std::min<int64_t>(L, columns - first);
                const auto lanes_at = [&](const T* from) NORCH_INLINE_LAMBDA {
                    V v{};
                    if (width == L) v = load_vector<L>(from);
                    else for (int64_t l = 0; l < width; ++l) v[l] = from[l];
                    return v;
                };
                for (int64_t j = 0; j < rows; ++j) {
                    store_vector(&z[j * 2 * L], lanes_at(in.re + j * columns + first));
                    store_vector(&z[j * 2 * L + L], lanes_at(in.im + j * columns + first));
                }
                transform_lanes(*of_columns, z.data());
                const T* const start = starts.data() + 2 * block * rows;
                for (int64_t k = 0; k < rows; ++k) {
                    const V cos = load_vector<L>(&steps[size_t(k * 2 * L)]), sin = load_vector<L>(&steps[size_t(k * 2 * L + L)]);
                    const V c = cos * start[2 * k] - sin * start[2 * k + 1], s = sin * start[2 * k] + cos * start[2 * k + 1];
                    const T* const from = &z[of_columns->places[size_t(k)] * 2 * L];
                    const V re = load_vector<L>(from), im = load_vector<L>(from + L);
                    const V turned_re = re * c - im * s, turned_im = im * c + re * s;
                    std::memcpy(between.re + k * columns + first, &turned_re, size_t(width) * sizeof(T));
                    std::memcpy(between.im + k * columns + first, &turned_im, size_t(width) * sizeof(T));
                }
            }
        });
        parallel_for((rows + L - 1) / L, ns(columns), [&](int64_t begin, int64_t end) {
            const Scratch<T> z(columns * 2 * L);
            for (int64_t block = begin; block < end; ++block) {
                const int64_t first = block * L;
                for (int part = 0; part < 2; ++part) {
                    RowLanes<T> lanes{{}, 1, int(std::min<int64_t>(L, rows - first))};
                    for (int l = 0; l < L; ++l)
                        lanes.at[l] = (part ? between.im : between.re) + (first + (l < lanes.count ? l : 0)) * columns;
                    T* const to = z.data() + part * L;
                    lanes.read(columns, [&](int64_t j, V v) NORCH_INLINE_LAMBDA { store_vector(to + j * 2 * L, v); });
                }
                transform_lanes(*of_rows, z.data());
                for (int part = 0; part < 2; ++part) {
                    RowLanes<T> lanes{{}, rows, int(std::min<int64_t>(L, rows - first))};
                    for (int l = 0; l < L; ++l) lanes.at[l] = (part ? out.im : out.re) + first + l;
                    const T* const from = z.data() + part * L;
                    lanes.write(columns, [&](int64_t k) NORCH_INLINE_LAMBDA {
                        return load_vector<L>(from + of_rows->places[size_t(k)] * 2 * L);
                    });
                }
            }
        });
    }
};

/// to[j * to_step] = from[j * step] * factor(j).
template <class T, class Factor>
NORCH_INLINE void copy_row(T* to, int64_t to_step, const T* from, int64_t step, int64_t n, const Factor& factor) {
    if (step == 1 && to_step == 1) {
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) to[j] = from[j] * factor(j);
    } else {
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) to[j * to_step] = from[j * step] * factor(j);
    }
}

/// Where the parts of one row begin, and the distance of its elements.
template <class T>
struct Row {
    T* part[2];
    int64_t along;
};

template <class T>
void transform_row(const Wanted& w, const FourierTables<T>& tables, const Cut<T>& cut, Row<T> in, Row<T> out, const T* window) {
    const int64_t m = w.points(), room = w.room();
    const Scratch<T> scratch(2 * (2 * room + m));
    const auto planes = [&](int64_t at, int64_t n) { return Planes<T>{scratch.data() + at, scratch.data() + at + n}; };
    const Planes<T> x = planes(0, room), between = planes(2 * room, m), y = planes(2 * (room + m), room);
    const bool exchanged = w.inputs == w.outputs && !w.forward;
    const auto weight = [=](int64_t j) NORCH_INLINE_LAMBDA { return window ? window[j] : T(1); };
    if (w.inputs == 1 && w.is_halved()) {
        const int64_t odd = w.size / 2, even = w.size - odd;
        copy_row(x.re, 1, in.part[0], 2 * in.along, even, [&](int64_t j) NORCH_INLINE_LAMBDA { return weight(2 * j); });
        copy_row(x.im, 1, in.part[0] + in.along, 2 * in.along, odd, [&](int64_t j) NORCH_INLINE_LAMBDA { return weight(2 * j + 1); });
        std::fill(x.re + even, x.re + m, T(0));
        std::fill(x.im + odd, x.im + m, T(0));
    } else {
        for (int64_t part = 0; part < 2; ++part) {
            T* const to = part == int64_t(exchanged) ? x.re : x.im;
            const int64_t n = part < w.inputs ? w.size : 0;
            if (w.inputs == 1) copy_row(to, 1, in.part[0], in.along, n, weight);
            else copy_row(to, 1, in.part[part], in.along, n, [](int64_t) NORCH_INLINE_LAMBDA { return T(1); });
            std::fill(to + n, to + room, T(0));
        }
    }
    if (w.outputs < w.inputs) start_real(w, tables, x);
    cut.run(x, between, y);
    if (w.outputs < w.inputs) {
        if (w.is_halved()) {
            copy_row(out.part[0], 2 * out.along, y.re, 1, (w.count + 1) / 2, [&](int64_t j) NORCH_INLINE_LAMBDA { return weight(2 * j); });
            copy_row(out.part[0] + out.along, 2 * out.along, y.im, 1, w.count / 2, [&](int64_t j) NORCH_INLINE_LAMBDA { return weight(2 * j + 1); });
        } else {
            copy_row(out.part[0], out.along, y.re, 1, w.count, weight);
        }
        return;
    }
    if (w.is_halved()) finish_halved(w, tables, y, [](int64_t k) NORCH_INLINE_LAMBDA { return k; });
    const T scale = w.is_halved() ? T(1) : T(w.scale);
    const int64_t whole = w.is_halved() ? std::min(w.count, m + 1) : w.count;
    for (int64_t part = 0; part < w.outputs; ++part) {
        const T* const from = part == int64_t(exchanged) ? y.re : y.im;
        const T factor = w.inputs == 1 && part && !w.forward ? -scale : scale, later = w.doubled && !w.is_halved() ? factor * 2 : factor;
        copy_row(out.part[part], out.along, from, 1, whole, [=](int64_t k) NORCH_INLINE_LAMBDA { return k ? later : factor; });
        const T other = part ? -factor : factor;
        if (whole < w.count)
            copy_row(out.part[part] + whole * out.along, out.along, from + w.n - whole, -1, w.count - whole, [=](int64_t) NORCH_INLINE_LAMBDA { return other; });
    }
}

// --- The kernel --------------------------------------------------------------------------------------------------------

template <class T>
class FourierKernel final : public Kernel {
    static constexpr int L = SIMD_WIDTH<T>;

public:
    FourierKernel(const Request& request, const Wanted& wanted, std::shared_ptr<const FourierTables<T>> tables)
        : w_(wanted), tables_(std::move(tables)) {
        const auto& operands = request.operands;
        const int nd = operands[0].ndim();
        rows_ = collapse({operands[0], operands[1]}, [&] {
            std::vector<int> dims;
            for (int d = 0; d + 2 < nd; ++d) dims.push_back(d);
            return dims;
        }());
        for (size_t i = 0; i < 2; ++i) {
            part_[i] = operands[i].strides[size_t(nd - 2)];
            along_[i] = operands[i].strides[size_t(nd - 1)];
        }
        if (operands.size() > 2) window_step_ = operands[2].strides[0], window_size_ = operands[2].shape[0];
        const int64_t bytes = w_.room() * 2 * L * int64_t(sizeof(T));
        if (bytes > IN_LANES || (rows_.numel * 2 <= L && w_.points() >= 128)) {
            cut_ = std::make_unique<Cut<T>>(w_.points());
            if (!cut_->rows) cut_ = nullptr;
        }
        row_ns_ = Cut<T>::ns(w_.points()) / L * (cut_ ? 1.5 : 1);
        work = row_ns_ * double(rows_.numel);
    }

    void run(char* const* data, const Scalar*) const override {
        const Scratch<T> weights(std::max<int64_t>(window_size_, 1));
        for (int64_t j = 0; j < window_size_; ++j) weights[j] = reinterpret_cast<const T*>(data[2])[j * window_step_];
        const T* const window = window_size_ ? weights.data() : nullptr;
        if (cut_) run_rows(data, window);
        else run_lanes(data, window);
    }

private:
    /// Where the first parts of row `i` begin, of the result and of the input.
    std::array<T*, 2> row(char* const* data, int64_t i) const {
        char* at[2] = {data[0], data[1]};
        rows_.move(at, rows_.ndim(), i);
        return {reinterpret_cast<T*>(at[0]), reinterpret_cast<T*>(at[1])};
    }

    void run_lanes(char* const* data, const T* window) const {
        parallel_for((rows_.numel + L - 1) / L, row_ns_ * L, [&](int64_t begin, int64_t end) {
            const Scratch<T> z(w_.room() * 2 * L);
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = i * L;
                const int count = int(std::min<int64_t>(L, rows_.numel - first));
                Block<T> block;
                for (int part = 0; part < 2; ++part) {
                    block.out[part].along = along_[0], block.in[part].along = along_[1];
                    block.out[part].count = block.in[part].count = count;
                }
                for (int l = 0; l < L; ++l) {
                    const auto at = row(data, first + (l < count ? l : 0));
                    for (int part = 0; part < 2; ++part) {
                        block.out[part].at[l] = at[0] + part * part_[0];
                        block.in[part].at[l] = at[1] + part * part_[1];
                    }
                }
                transform_block(w_, *tables_, block, window, z.data());
            }
        });
    }

    void run_rows(char* const* data, const T* window) const {
        const auto one = [&](int64_t i) {
            const auto at = row(data, i);
            transform_row(w_, *tables_, *cut_, {{at[1], at[1] + part_[1]}, along_[1]}, {{at[0], at[0] + part_[0]}, along_[0]}, window);
        };
        if (rows_.numel < num_threads()) {  // the threads share each row
            for (int64_t i = 0; i < rows_.numel; ++i) one(i);
            return;
        }
        parallel_for(rows_.numel, row_ns_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) one(i);
        });
    }

    Wanted w_;
    std::shared_ptr<const FourierTables<T>> tables_;
    std::unique_ptr<Cut<T>> cut_;
    Loops rows_;
    int64_t part_[2], along_[2];  // of the result and of the input
    int64_t window_step_ = 0, window_size_ = 0;
    double row_ns_;
};

KernelPtr dft(const Request& request) {
    const Operand &out = request.operands[0], &in = request.operands[1];
    const size_t nd = size_t(in.ndim());
    Wanted w;
    w.n = request.attrs.integer("n");
    w.size = in.shape[nd - 1], w.count = out.shape[nd - 1];
    w.inputs = in.shape[nd - 2], w.outputs = out.shape[nd - 2];
    w.forward = request.attrs.integer("sign") < 0, w.doubled = request.attrs.flag("doubled");
    w.scale = request.attrs.number("scale");
    const auto made = [&]<class T>(T) -> KernelPtr {
        auto tables = FourierTables<T>::of(w.points());
        return tables ? std::make_unique<FourierKernel<T>>(request, w, std::move(tables)) : nullptr;
    };
    const bool of_one_dtype = std::all_of(request.operands.begin(), request.operands.end(), [&](const Operand& o) { return o.dtype == out.dtype; });
    if (!of_one_dtype || w.inputs + w.outputs < 3 || out.numel() == 0) return nullptr;
    if (out.dtype == DType::f32) return made(float());
    return out.dtype == DType::f64 ? made(double()) : nullptr;
}

}  // namespace

void add_fourier(Registry& registry) { registry["dft"] = dft; }

}  // namespace norch::nn
