// dft: Fourier transforms along the last dim; dft2: of images, along two. Several rows are the lanes of vectors; a long
// row, or one of few, is a matrix whose columns are. Real numbers are taken for half as many complex ones.
#include <algorithm>
#include <array>

#include "common/layout.h"
#include "common/scratch.h"
#include "spectral/long_row.h"
#include "runtime/families.h"

namespace norch::spectral {
namespace {

// Bytes that the numbers of all lanes may take: of few blocks, which threads cannot share, and of many.
constexpr int64_t FEW_IN_LANES = 1 << 17, MANY_IN_LANES = 1 << 20;

/// The rows of a block: where the parts of each begin.
template <class T>
struct Block {
    RowLanes<T> in[2], out[2];
};

/// The numbers of real parts, or of imaginary ones, of all rows; with zeros behind what is given.
template <class T>
void read_lanes(const Wanted& w, const Block<T>& block, const T* window, T* z) {
    constexpr int L = SIMD_WIDTH<T>;
    using V = vector_t<T, L>;
    if (w.inputs == 1 && w.is_halved()) {
        std::fill(z + w.size * L, z + w.n * L, T(0));
    } else {
        if (w.inputs == 1)
            for (int64_t j = 0; j < w.size; ++j) store_vector(z + j * 2 * L + L, V{});
        if (w.size < w.room()) std::fill(z + w.size * 2 * L, z + w.room() * 2 * L, T(0));
    }
    const int64_t step = w.inputs == 1 && w.is_halved() ? L : 2 * L;
    for (int64_t part = 0; part < w.inputs; ++part) {
        T* const to = z + (w.is_exchanged() ? 1 - part : part) * L;
        const auto put = [&](int64_t j, V v) NORCH_INLINE_LAMBDA { store_vector(to + j * step, v); };
        if (w.inputs == 1 && window)
            block.in[part].read(w.size, [&](int64_t j, V v) NORCH_INLINE_LAMBDA { put(j, v * window[j]); });
        else block.in[part].read(w.size, put);
    }
}

/// Rows as lanes. `z`: room for w.room() numbers.
template <class T>
void transform_block(const Wanted& w, const FourierTables<T>& tables, const Block<T>& block, const T* window, T* z) {
    constexpr int64_t L = SIMD_WIDTH<T>;
    const LaneNumbers<T> numbers{z};
    const int32_t* const places = tables.places.data();
    read_lanes(w, block, window, z);
    if (w.outputs < w.inputs) {
        start_real<T>(w, numbers);
        if (w.is_halved()) start_halved(w, tables, numbers, 1);
        transform_lanes(tables, z);
        const auto get = [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(z + (w.is_halved() ? places[k / 2] * 2 * L + k % 2 * L : places[k] * 2 * L));
        };
        if (window) block.out[0].write(w.count, [&](int64_t k) NORCH_INLINE_LAMBDA { return get(k) * window[k]; });
        else block.out[0].write(w.count, get);
        return;
    }
    transform_lanes(tables, z);
    if (w.is_halved()) {
        finish_ends<T>(w, numbers);
        finish_halved(w, tables, numbers, 1, [=](int64_t k) NORCH_INLINE_LAMBDA { return int64_t(places[k]); });
    }
    const int64_t m = w.points(), computed = w.computed();
    for (int64_t part = 0; part < w.outputs; ++part) {
        const T* const from = z + (w.is_exchanged() ? 1 - part : part) * L;
        const auto factors = w.factors<T>(part);
        RowLanes<T> out = block.out[part];
        out.write(computed, [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(from + (k < m ? places[k] : k) * 2 * L) * (k ? factors.others : factors.first);
        });
        for (T*& at : out.at) at += computed * out.along;
        out.write(w.count - computed, [&](int64_t k) NORCH_INLINE_LAMBDA {
            return load_vector<L>(from + places[w.n - computed - k] * 2 * L) * factors.conjugates;
        });
    }
}

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
        const bool are_few = rows_.numel * 2 <= L && w_.points() >= 128;
        if (are_few || bytes > (rows_.numel >= 4 * L ? MANY_IN_LANES : FEW_IN_LANES)) {
            cut_ = std::make_unique<Cut<T>>(w_.points());
            if (!cut_->rows) cut_ = nullptr;
        }
        const int64_t tasks = cut_ ? rows_.numel : (rows_.numel + L - 1) / L;
        for (int side = 0; side < 2 && !cut_; ++side) extent_[side] = shared_extent(side);
        const int64_t room = cut_ ? row_room<T>(w_) : w_.room() * 2 * L + copy_room(0) + copy_room(1);
        note_scratch(room * int64_t(sizeof(T)) * std::min<int64_t>(tasks, num_threads()));
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

    /// Elements of memory that a row of the result (0) or of the input (1) takes, where rows lie about whole pages apart: so
    /// many share a few sets of the first cache, and are copied. Else 0.
    int64_t shared_extent(int side) const {
        constexpr int64_t PAGE = 4096;
        const int64_t parts = side ? w_.inputs : w_.outputs, n = side ? w_.size : w_.count;
        const bool is_dense = along_[side] == 1 ? parts == 1 || part_[side] == n : along_[side] == parts && part_[side] == 1;
        if (!is_dense || rows_.numel < L) return 0;
        const int64_t apart = std::abs(rows_.strides[size_t(side)].back());
        return apart >= PAGE && (apart + LINE) % PAGE <= 2 * LINE ? n * parts : 0;
    }
    static constexpr int64_t LINE = 64;
    /// From a row's copy to the next one's.
    int64_t pitch(int side) const { return (extent_[side] * int64_t(sizeof(T)) / LINE + 2) * LINE / int64_t(sizeof(T)); }
    int64_t copy_room(int side) const { return extent_[side] ? L * pitch(side) : 0; }

    void run_lanes(char* const* data, const T* window) const {
        // Rows that lie side by side, element by element, are not mixed with those of another such group. Where lanes
        // are left over at the end of one, they go back over what is done.
        const auto has_step = [&](int i) { return rows_.strides[size_t(i)].back() == int64_t(sizeof(T)); };
        const bool side_by_side = rows_.ndim() && has_step(0) && has_step(1);
        const int64_t group = side_by_side ? rows_.shape.back() : rows_.numel, blocks = (group + L - 1) / L;
        parallel_for(rows_.numel / group * blocks, row_ns_ * L, [&](int64_t begin, int64_t end) {
            const Scratch<T> z(w_.room() * 2 * L);
            Scratch<T> results(copy_room(0)), inputs(copy_room(1));
            for (int64_t i = begin; i < end; ++i) {
                const int64_t back = side_by_side && group >= L ? std::max<int64_t>(i % blocks * L - (group - L), 0) : 0;
                const int64_t first = i / blocks * group + i % blocks * L - back;
                const int count = int(std::min<int64_t>(L, (i / blocks + 1) * group - first));
                Block<T> block;
                for (int part = 0; part < 2; ++part) {
                    block.out[part].along = along_[0], block.in[part].along = along_[1];
                    block.out[part].count = block.in[part].count = count;
                    block.out[part].first = int(back);
                }
                T* rows[L];  // of the result
                for (int l = 0; l < L; ++l) {
                    auto at = row(data, first + (l < count ? l : 0));
                    rows[l] = at[0];
                    if (extent_[0]) at[0] = results.data() + l * pitch(0);
                    if (extent_[1]) at[1] = std::copy_n(at[1], extent_[1], inputs.data() + l * pitch(1)) - extent_[1];
                    for (int part = 0; part < 2; ++part) {
                        block.out[part].at[l] = at[0] + part * part_[0];
                        block.in[part].at[l] = at[1] + part * part_[1];
                    }
                }
                transform_block(w_, *tables_, block, window, z.data());
                for (int64_t l = back; l < count && extent_[0]; ++l) std::copy_n(block.out[0].at[l], extent_[0], rows[l]);
            }
        });
    }

    void run_rows(char* const* data, const T* window) const {
        const auto one = [&](int64_t i) {
            const auto at = row(data, i);
            const Row<T> in{{at[1], at[1] + part_[1]}, along_[1]}, out{{at[0], at[0] + part_[0]}, along_[0]};
            transform_row(w_, *tables_, *cut_, in, out, window);
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
    int64_t part_[2], along_[2], extent_[2] = {};  // of the result and of the input
    int64_t window_step_ = 0, window_size_ = 0;
    double row_ns_;
};

/// Operands: the result and the input, perhaps a window.
[[gnu::cold]] KernelPtr transform(const Request& request, const Wanted& w) {
    const Operand& out = request.operands[0];
    const auto made = [&]<class T>(T) -> KernelPtr {
        auto tables = FourierTables<T>::of(w.points());
        return tables ? std::make_unique<FourierKernel<T>>(request, w, std::move(tables)) : nullptr;
    };
    for (const Operand& operand : request.operands)
        if (operand.dtype != out.dtype) return nullptr;
    if (w.inputs + w.outputs < 3 || out.numel() == 0) return nullptr;
    if (out.dtype == DType::f32) return made(float());
    return out.dtype == DType::f64 ? made(double()) : nullptr;
}

/// Of the last dims of the result and the input: parts, and what the transform is along.
Wanted wanted(const Request& request, const Operand& out, const Operand& in) {
    const size_t nd = size_t(in.ndim());
    Wanted w;
    w.size = in.shape[nd - 1], w.count = out.shape[nd - 1];
    w.inputs = in.shape[nd - 2], w.outputs = out.shape[nd - 2];
    w.forward = request.attrs.integer("sign") < 0;
    return w;
}

[[gnu::cold]] KernelPtr dft(const Request& request) {
    Wanted w = wanted(request, request.operands[0], request.operands[1]);
    w.n = request.attrs.integer("n");
    w.doubled = request.attrs.flag("doubled");
    w.scale = request.attrs.number("scale");
    return transform(request, w);
}

/// Two transforms of each image, with what is between them in a cache.
class PlaneKernel final : public Kernel {
public:
    PlaneKernel(KernelPtr first, KernelPtr second, Loops images, int64_t bytes_between)
        : first_(std::move(first)), second_(std::move(second)), images_(std::move(images)), bytes_(bytes_between) {
        work = double(images_.numel) * (first_->work + second_->work);
    }
    void run(char* const* data, const Scalar* scalars) const override {
        parallel_for(images_.numel, first_->work + second_->work, [&](int64_t begin, int64_t end) {
            const Scratch<> between(bytes_);
            for (int64_t i = begin; i < end; ++i) {
                char* at[2] = {data[0], data[1]};
                images_.move(at, images_.ndim(), i);
                char *const to_between[] = {between.data(), at[1]}, *const to_out[] = {at[0], between.data()};
                first_->run(to_between, scalars);
                second_->run(to_out, scalars);
            }
        });
    }

private:
    KernelPtr first_, second_;
    Loops images_;
    int64_t bytes_;
};

constexpr int64_t BETWEEN_BYTES = 1 << 19;  // of what goes from one transform to the next: more is in no cache of a core's

[[gnu::cold]] KernelPtr dft2(const Request& request) {
    const Operand &out = request.operands[0], &in = request.operands[1];
    const int nd = in.ndim();
    const bool last_first = request.attrs.flag("last_first");
    const auto image = [&](const Operand& o) {
        return Operand{o.dtype, {o.shape.end() - 3, o.shape.end()}, {o.strides.end() - 3, o.strides.end()}};
    };
    const auto turned = [](Operand o) {
        std::swap(o.shape[0], o.shape[2]);
        std::swap(o.strides[0], o.strides[2]);
        return o;
    };
    const Operand from = image(in), to = image(out);
    const int64_t height = (last_first ? from : to).shape[0], width = (last_first ? to : from).shape[2];
    const int64_t line = 64 / size_of(out.dtype), row = ((2 * width + line - 1) / line | 1) * line;  // spreads columns
    const Operand between{out.dtype, {height, 2, width}, {row, width, 1}};
    Loops images = collapse({out, in}, dims_but(nd - 3));
    const int64_t bytes = height * row * size_of(out.dtype);
    if (images.numel < 2 || bytes > BETWEEN_BYTES) return nullptr;
    const auto made = [&](bool along_last, Operand result, Operand given) {
        if (!along_last) result = turned(result), given = turned(given);
        Wanted w = wanted(request, result, given);
        w.n = request.attrs.integers("n")[size_t(along_last)];
        w.scale = request.attrs.number(along_last ? "scale" : "height_scale");
        w.doubled = along_last && request.attrs.flag("doubled");
        Request one;
        one.op = "dft";
        one.operands = {result, given};
        return transform(one, w);
    };
    KernelPtr first = made(last_first, between, from), second = made(!last_first, to, between);
    if (!first || !second) return nullptr;
    return std::make_unique<PlaneKernel>(std::move(first), std::move(second), std::move(images), bytes);
}

}  // namespace

void add_fourier(Registry& registry) {
    registry["dft"] = dft;
    registry["dft2"] = dft2;
}

}  // namespace norch::spectral
