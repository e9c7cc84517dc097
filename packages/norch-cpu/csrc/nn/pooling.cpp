// max_pool2d, where its largest elements are, and its gradient, which finds them again.
#include "nn/pooling.h"
#include "runtime/simd.h"

namespace norch::nn {

using reduction::Largest;

Pool::Pool(const Operand& whole, const Operand& pooled, const Attrs& attrs) {
    const auto &windows = attrs.integers("windows"), &pads = attrs.integers("pads");
    kh = windows[0], kw = windows[1];
    step_y = windows[2], step_x = windows[3];
    gap_y = windows[4], gap_x = windows[5];
    top = pads[0], left = pads[2];
    channels = whole.shape[1];
    planes = whole.shape[0] * channels;
    h = whole.shape[2], w = whole.shape[3];
    rows = pooled.shape[2], columns = pooled.shape[3];
}

namespace {

/// Row i of all planes' rows.
struct RowOfPlane {
    RowOfPlane(int64_t i, int64_t rows) : i(i), rows(rows), plane(i / rows), y(i % rows) {}
    void next() {
        ++i;
        if (++y == rows) y = 0, ++plane;
    }
    int64_t i, rows, plane, y;
};

/// Calls f(integral_constant<N>) with how many windows of a row of n to take at a time: 1 in rows shorter than 4.
template <class T, int N = std::min(16, VECTOR_BYTES / int(sizeof(T))), class F>
void with_lanes(int64_t n, const F& f) {
    if constexpr (N >= 4) {
        if (n < N) return with_lanes<T, N / 2>(n, f);
        f(std::integral_constant<int, N>{});
    } else {
        f(std::integral_constant<int, 1>{});
    }
}

/// N windows of 2 * 2 in two rows.
template <class T, int N>
struct Halving {
    using V = vector_t<T, N>;
    V a0, a1, b0, b1, best;

    Halving(const T* a, const T* b) {
        const V a_low = load_vector<N>(a), a_high = load_vector<N>(a + N);
        const V b_low = load_vector<N>(b), b_high = load_vector<N>(b + N);
        a0 = deinterleave<0, N>(a_low, a_high), a1 = deinterleave<1, N>(a_low, a_high);
        b0 = deinterleave<0, N>(b_low, b_high), b1 = deinterleave<1, N>(b_low, b_high);
        best = Largest::apply(Largest::apply(a0, a1), Largest::apply(b0, b1));
    }

    static void forward(const T* a, const T* b, T* out) { store_vector(out, Halving(a, b).best); }

    /// The first largest element gets g, the others 0.
    static void backward(const T* g, const T* a, const T* b, T* to_a, T* to_b) {
        const Halving w(a, b);
        const V none{}, all = load_vector<N>(g);
        // best is NaN only where an element is.
        const auto is_a0 = (w.a0 == w.best) | (w.a0 != w.a0);
        const auto is_a1 = (w.a1 == w.best) | (w.a1 != w.a1);
        const auto is_b0 = (w.b0 == w.best) | (w.b0 != w.b0);
        const V to_a0 = is_a0 ? all : none;
        const V but_a0 = is_a0 ? none : all;
        const V to_a1 = is_a1 ? but_a0 : none;
        const V but_a1 = is_a1 ? none : but_a0;
        const V to_b0 = is_b0 ? but_a1 : none;
        const V to_b1 = is_b0 ? none : but_a1;
        store_vector(to_a, interleave<false, N>(to_a0, to_a1)), store_vector(to_a + N, interleave<true, N>(to_a0, to_a1));
        store_vector(to_b, interleave<false, N>(to_b0, to_b1)), store_vector(to_b + N, interleave<true, N>(to_b0, to_b1));
    }
};

template <class T>
struct Halving<T, 1> {
    static void forward(const T* a, const T* b, T* out) {
        *out = Largest::apply(Largest::apply(a[0], a[1]), Largest::apply(b[0], b[1]));
    }
    static void backward(const T* g, const T* a, const T* b, T* to_a, T* to_b) {
        const T each[4] = {a[0], a[1], b[0], b[1]}, all = *g;
        T best;
        forward(a, b, &best);
        int first = 0;
        while (first < 3 && each[first] != best && each[first] == each[first]) ++first;
        to_a[0] = first == 0 ? all : T(0), to_a[1] = first == 1 ? all : T(0);
        to_b[0] = first == 2 ? all : T(0), to_b[1] = first == 3 ? all : T(0);
    }
};

/// Calls f(x) for x in steps of N up to n; the last step goes back over what is done rather than past the end.
template <int N, class F>
void in_steps(int64_t n, const F& f) {
    for (int64_t x = 0; x < n; x += N) f(std::min(x, n - N));
}

template <class T>
[[gnu::cold]] KernelPtr max_pool(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[1], r.operands[0], r.attrs);
    const Planes from(r.operands[1]);
    if (!p.is_halving() || !seen.is_direct(from.column)) return pooled<Largest>(r, seen);
    const double ns = double(p.columns) * 0.3 * sizeof(T);
    return parallel_kernel(p.planes * p.rows, ns, [=](char* const* data, int64_t begin, int64_t end) {
        with_lanes<T>(p.columns, [=](auto lanes) {
            constexpr int N = decltype(lanes)::value;
            T* out = reinterpret_cast<T*>(data[0]) + begin * p.columns;
            for (RowOfPlane at(begin, p.rows); at.i < end; at.next(), out += p.columns) {
                const T* a = reinterpret_cast<const T*>(data[1]) + from.at(at.plane) + at.y * 2 * from.row;
                in_steps<N>(p.columns, [=](int64_t x) { Halving<T, N>::forward(a + 2 * x, a + from.row + 2 * x, out + x); });
            }
        });
    });
}

/// Where in their plane the first largest elements of a row's windows are; the nearest elements where windows have none.
/// Those of the windows' parts in a row of the plane are found once, where the next windows see it again: some rows are kept.
template <class T>
class Places {
public:
    Places(const Pool& p, const Planes& from)
        : p_(p), from_(from), width_((p.columns + N - 1) / N * N), span_((p.kh - 1) * p.gap_y + 1),
          keeps_(p.step_y < span_ && width_ * span_ <= KEPT), slots_(keeps_ ? span_ : 1), part_((width_ + (p.kw - 1) * p.gap_x / p.step_x + N) / N * N), line_(std::max(part_ * p.step_x, p.left + p.w)),
          parts_(p.step_x > 2 ? part_ * p.step_x : 0), largest_(width_ * (slots_ + 1)),
          found_(width_ * (slots_ + 1)), columns_(width_), steps_(width_), known_(slots_), rows_(std::max<int64_t>(p.kh, 2)),
          offsets_(p.kw) {
        std::fill_n(line_.data(), part_ * p.step_x, Largest::empty<T>);
        for (int64_t j = 0; j < p.kw; ++j) {
            const int64_t at = j * p.gap_x;
            offsets_[j] = p.step_x > 2 ? at % p.step_x * part_ + at / p.step_x : at;
        }
        for (int64_t x = 0; x < width_; ++x) {
            columns_[x] = int32_t(first(x * p.step_x - p.left, p.gap_x, p.kw, p.w));
            steps_[x] = int32_t(x * p.step_x - p.left);
        }
    }

    /// Before the first row of each plane.
    void begin() { std::fill_n(known_.data(), slots_, int64_t(-1)); }

    const int32_t* in_row(const SeenAs<T>& seen, const char* plane, int64_t y) {
        const int64_t top = y * p_.step_y - p_.top;
        const int64_t result = slots_ * width_;
        int64_t count = 0;
        for (int64_t i = 0; i < p_.kh; ++i) {
            const int64_t at = top + i * p_.gap_y;
            if (at < 0 || at >= p_.h) continue;
            if (keeps_) {
                const int64_t slot = at % slots_;
                if (known_[slot] != at) look_along(seen, plane, known_[slot] = at, slot * width_);
                rows_[count] = slot * width_;
            } else {
                look_along(seen, plane, at, count ? 0 : result);
                rows_[0] = result, rows_[1] = 0;
                if (count) join(2, result);
            }
            ++count;
        }
        if (keeps_ && count == 1) return found_.data() + rows_[0];
        if (keeps_ && count) join(count, result);
        int32_t* const found = found_.data() + result;
        const int64_t nearest = std::clamp<int64_t>(top, 0, p_.h - 1) * p_.w;
        for (int64_t x = 0; x < p_.columns && !count; ++x) found[x] = int32_t(nearest) + columns_[x];
        return found;
    }

private:
    static constexpr int N = SIMD_WIDTH<T>;
    static constexpr int64_t KEPT = 1 << 15;  // elements: what stays in the second cache

    struct Best {
        vector_t<T, N> value;
        vector_t<int32_t, N> place;
        void meet(vector_t<T, N> v, vector_t<int32_t, N> at) {
            const auto takes = (v > value) | ((v != v) & (value == value));
            value = takes ? v : value;
            place = __builtin_convertvector(takes, vector_t<int32_t, N>) ? at : place;
        }
    };

    /// The larger of each column of the first `count` of `rows_`.
    void join(int64_t count, int64_t to) {
        for (int64_t x = 0; x < width_; x += N) {
            Best best{load_vector<N>(largest_.data() + rows_[0] + x), load_vector<N>(found_.data() + rows_[0] + x)};
            for (int64_t i = 1; i < count; ++i)
                best.meet(load_vector<N>(largest_.data() + rows_[i] + x), load_vector<N>(found_.data() + rows_[i] + x));
            store_vector(largest_.data() + to + x, best.value);
            store_vector(found_.data() + to + x, best.place);
        }
    }

    /// The first of `count` elements from `start` on, `gap` apart, that lies within [0, size); or the one nearest to them.
    static int64_t first(int64_t start, int64_t gap, int64_t count, int64_t size) {
        for (int64_t i = start; i < start + count * gap; i += gap)
            if (i >= 0 && i < size) return i;
        return std::clamp<int64_t>(start, 0, size - 1);
    }

    /// The same, and the elements, of the windows' parts in row `at`.
    void look_along(const SeenAs<T>& seen, const char* plane, int64_t at, int64_t slot) {
        const int64_t count = std::min(p_.w, p_.line() - p_.left);
        seen.load(line_.data() + p_.left, plane + at * from_.row * seen.size(), from_.column, count);
        if (p_.step_x == 1)
            compare<1>(int32_t(at * p_.w), slot);
        else if (p_.step_x == 2)
            compare<2>(int32_t(at * p_.w), slot);
        else
            part_line(), compare<0>(int32_t(at * p_.w), slot);
    }

    template <int STEP>
    __attribute__((noinline)) void compare(int32_t row, int64_t slot) {
        T* const largest = largest_.data() + slot;
        int32_t* const found = found_.data() + slot;
        const int64_t* const offsets = offsets_.data();
        const int64_t kw = p_.kw, gap = p_.gap_x;
        for (int64_t x = 0; x < width_; x += N) {
            const auto places = load_vector<N>(steps_.data() + x) + row;
            Best best{each<STEP>(x, 0), load_vector<N>(columns_.data() + x) + row};
            for (int64_t j = 1; j < kw; ++j) best.meet(each<STEP>(x, offsets[j]), places + int32_t(j * gap));
            store_vector(largest + x, best.value);
            store_vector(found + x, best.place);
        }
    }

    /// An element of each of N windows.
    template <int STEP>
    vector_t<T, N> each(int64_t x, int64_t offset) const {
        if constexpr (STEP == 0) return load_vector<N>(parts_.data() + x + offset);
        const T* const from = line_.data() + x * STEP + offset;
        if constexpr (STEP == 1) return load_vector<N>(from);
        else return deinterleave<0, N>(load_vector<N>(from), load_vector<N>(from + N));
    }

    /// Brings together every step_x-th element of the line.
    void part_line() {
        const int64_t step = p_.step_x, used = std::min(step, (p_.kw - 1) * p_.gap_x + 1);
        for (int64_t j = 0; j < used; ++j) {
            const T* from = line_.data() + j;
            T* const to = parts_.data() + j * part_;
            for (int64_t x = 0; x < part_; ++x, from += step) to[x] = *from;
        }
    }

    const Pool& p_;
    Planes from_;
    int64_t width_;   // columns, to whole vectors
    int64_t span_;    // rows from a window's first to its last
    bool keeps_;
    int64_t slots_;   // rows that are kept; behind them is the result
    int64_t part_;    // every step_x-th element of a line, as many as whole vectors read
    Scratch<T> line_, parts_, largest_;
    Scratch<int32_t> found_, columns_, steps_;
    Scratch<int64_t> known_;  // the row that each of them holds
    Scratch<int64_t> rows_;   // where those of a window are
    Scratch<int64_t> offsets_;  // of a window's elements in a line, or in its parts
};

template <class T>
[[gnu::cold]] KernelPtr indices(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[1], r.operands[0], r.attrs);
    const Planes from(r.operands[1]);
    if (p.h * p.w > INT32_MAX) return nullptr;
    const double ns = double(p.columns) * (1 + 0.4 * p.window());
    return parallel_kernel(p.planes * p.rows, ns, [=](char* const* data, int64_t begin, int64_t end) {
        Places<T> places(p, from);
        int64_t* out = reinterpret_cast<int64_t*>(data[0]) + begin * p.columns;
        for (RowOfPlane at(begin, p.rows); at.i < end; at.next(), out += p.columns) {
            if (at.y == 0 || at.i == begin) places.begin();
            std::copy_n(places.in_row(seen, data[1] + from.at(at.plane) * seen.size(), at.y), p.columns, out);
        }
    });
}

template <class T>
[[gnu::cold]] KernelPtr halving_grad(const Request& r, const Pool& p) {
    const Planes grads(r.operands[1]), from(r.operands[2]);
    const double ns = double(p.columns) * 0.8 * sizeof(T);
    return parallel_kernel(p.planes * p.rows, ns, [=](char* const* data, int64_t begin, int64_t end) {
        with_lanes<T>(p.columns, [=](auto lanes) {
            constexpr int N = decltype(lanes)::value;
            for (RowOfPlane at(begin, p.rows); at.i < end; at.next()) {
                const int64_t plane = at.plane, y = at.y;
                const T* a = reinterpret_cast<const T*>(data[2]) + from.at(plane) + y * 2 * from.row;
                const T* g = reinterpret_cast<const T*>(data[1]) + grads.at(plane) + y * grads.row;
                T* out = reinterpret_cast<T*>(data[0]) + (plane * p.h + y * 2) * p.w;
                in_steps<N>(p.columns, [=](int64_t x) {
                    Halving<T, N>::backward(g + x, a + 2 * x, a + from.row + 2 * x, out + 2 * x, out + p.w + 2 * x);
                });
                for (int64_t x = p.columns * 2; x < p.w; ++x) out[x] = out[p.w + x] = 0;
                if (y == p.rows - 1) std::fill_n(out + 2 * p.w, (p.h - p.rows * 2) * p.w, T(0));
            }
        });
    });
}

template <class T>
[[gnu::cold]] KernelPtr max_grad(const Request& r, const SeenAs<T>& seen) {
    const Pool p(r.operands[0], r.operands[1], r.attrs);
    const Planes grads(r.operands[1]), from(r.operands[2]);
    if (p.is_halving() && p.rows && seen.is_direct(from.column) && grads.column == 1) return halving_grad<T>(r, p);
    if (p.h * p.w > INT32_MAX) return nullptr;
    const double ns = double(p.rows * p.columns) * (2 + 0.4 * p.window()) + double(p.h * p.w);
    return parallel_kernel(p.planes, ns, [=](char* const* data, int64_t begin, int64_t end) {
        const int64_t size = p.h * p.w;
        Scratch<T> buffer(seen.elements.is_seen ? 0 : size), row(p.columns);
        Places<T> places(p, from);
        for (int64_t i = begin; i < end; ++i) {
            const char* plane = data[2] + from.at(i) * seen.size();
            const char* grad = data[1] + grads.at(i) * seen.size();
            char* const out = data[0] + i * size * seen.size();
            T* const sums = seen.elements.is_seen ? reinterpret_cast<T*>(out) : buffer.data();
            std::fill_n(sums, size, T(0));
            places.begin();
            for (int64_t y = 0; y < p.rows; ++y, grad += grads.row * seen.size()) {
                const int32_t* at = places.in_row(seen, plane, y);
                const T* g = seen.row(grad, grads.column, p.columns, row.data());
                for (int64_t x = 0; x < p.columns; ++x) sums[at[x]] += g[x];
            }
            if (!seen.elements.is_seen) seen.store(out, sums, size);
        }
    });
}

}  // namespace

void add_pooling(Registry& registry) {
    registry["max_pool2d"] = [](const Request& r) -> KernelPtr {
        if (!r.operands[0].is_contiguous()) return pooling_channels_last(r);
        return visit_seen(r.operands[0].dtype, [&](auto seen) { return max_pool(r, seen); });
    };
    registry["max_pool2d_indices"] = [](const Request& r) -> KernelPtr {
        if (!r.operands[0].is_contiguous()) return nullptr;
        return visit_seen(r.operands[1].dtype, [&](auto seen) { return indices(r, seen); });
    };
    registry["max_pool2d_grad"] = [](const Request& r) -> KernelPtr {
        const DType dtype = r.operands[0].dtype;
        if (r.operands[1].dtype != dtype || r.operands[2].dtype != dtype) return nullptr;
        if (!r.operands[0].is_contiguous()) return pooling_channels_last(r);
        return visit_seen_floating(dtype, [&](auto seen) { return max_grad(r, seen); });
    };
    add_sum_pooling(registry);
}

}  // namespace norch::nn
