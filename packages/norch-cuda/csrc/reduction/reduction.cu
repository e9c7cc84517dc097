// sum, prod, amax, amin, any, all: which kernel serves which layout, and how the work is split.
#include <algorithm>

#include "reduction/reduce.cuh"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::reduction {
namespace {

constexpr int64_t BLOCKS = 16;  // for each multiprocessor, where there is enough to do

int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

/// Counts packets instead of elements along the innermost dim.
template <int N>
Layout<N> in_packets(Layout<N> layout, int vec) {
    layout.size[0] = FastDivide(layout.size[0].divisor / uint32_t(vec));
    layout.numel /= uint32_t(vec);
    for (int k = 0; k < N; ++k) layout.stride[k][0] *= vec;
    return layout;
}

/// Whether all strides and starts but the innermost dim's (`has_inner`) are of whole packets of 16 bytes.
template <int N>
bool is_regular(const std::vector<Piece<N>>& pieces, bool has_inner, int vec) {
    for (const Piece<N>& piece : pieces) {
        if (piece.start[0] % 16) return false;
        if (has_inner && (piece.layout.ndim == 0 || piece.layout.size[0].divisor % uint32_t(vec))) return false;
        for (int d = has_inner; d < piece.layout.ndim; ++d)
            if (piece.layout.stride[0][d] % 16) return false;
    }
    return true;
}

/// The kernel of a piece's outputs and a piece of what is reduced, and how many parts of the result it makes.
struct Job {
    enum Kind { rows, columns, sums, any } kind;
    Reduction r = {};
    int log_group = 0;          // of rows
    Arrangement threads = {};   // of the others
    int64_t out_stride = 0, start = 0;
    int64_t blocks = 0;
};

void split(Job& job, int64_t total, int64_t unit, int64_t chunks) {
    job.r.chunk = uint32_t(std::max<int64_t>(1, round_up(ceil_div(total, std::max<int64_t>(1, chunks)), unit)));
    job.r.chunks = uint32_t(std::max<int64_t>(1, ceil_div(total, job.r.chunk)));
}

void plan_rows(Job& job, int vec) {
    const int64_t scale = job.r.is_line ? vec : 1, packets = ceil_div(job.r.reduced.numel, scale);
    const int64_t outputs = job.r.kept.numel, sms = multiprocessors();
    const bool is_block = packets >= 512 || (packets > 64 && outputs < 2 * sms);
    // Where there are outputs enough for all threads, each takes several packets.
    const int64_t each = packets <= 32 && outputs * packets > 8192 * sms ? 4 : 1;
    job.log_group = is_block ? log2_up(THREADS, 31) : log2_up(ceil_div(packets, each), 5);
    int64_t chunks = 1;
    if (packets > 4096) chunks = std::min(ceil_div(packets, 4 * THREADS), ceil_div(BLOCKS * sms, outputs));
    split(job, packets * scale, 4 * THREADS * scale, chunks);
    job.blocks = ceil_div(outputs * job.r.chunks, THREADS >> job.log_group);
}

void plan_columns(Job& job, bool is_along_reduced) {
    constexpr int LOG_THREADS = 8;
    static_assert(THREADS == 1 << LOG_THREADS);
    const int64_t outputs = job.r.kept.numel, count = job.r.reduced.numel, sms = multiprocessors();
    job.threads.is_along_reduced = is_along_reduced;
    if (is_along_reduced) job.threads.log_across = LOG_THREADS - log2_up(count, LOG_THREADS);
    else if (outputs < 32 * sms && count <= 1024) job.threads.log_across = log2_up(outputs, count <= 256 ? 3 : 2);
    else job.threads.log_across = log2_up(outputs, job.kind == Job::any && outputs >= 4096 ? 7 : 5);
    // Of few to reduce a thread takes four at once, so that no threads are left without any.
    const int few = LOG_THREADS - log2_up(ceil_div(count, 4), LOG_THREADS);
    if (!is_along_reduced && few > job.threads.log_across && outputs >> few >= 2 * sms) job.threads.log_across = few;
    const int64_t blocks = ceil_div(outputs, int64_t(1) << job.threads.log_across);
    const int64_t along = THREADS >> job.threads.log_across;
    int64_t chunks = 1;
    if (count > 32 * along) chunks = std::min(ceil_div(count, 8 * along), ceil_div(BLOCKS * sms, blocks));
    split(job, count, 4 * along, chunks);
    job.blocks = blocks * job.r.chunks;
}

/// Of column_sum_kernel: two blocks for each multiprocessor.
void plan_sums(Job& job) {
    const int64_t tiles = ceil_div(job.r.kept.numel, 32), rows = job.r.reduced.numel;
    const int64_t chunks = std::min(ceil_div(rows, 4 * SUM_WARPS), std::max<int64_t>(1, 2 * int64_t(multiprocessors()) / tiles));
    job.r.chunk = uint32_t(ceil_div(rows, chunks));
    job.r.chunks = uint32_t(ceil_div(rows, job.r.chunk));
    job.blocks = tiles;
}

template <class T>
class Reduce final : public Kernel {
public:
    using A = folded<T>;
    static constexpr int VEC = PER_16_BYTES<T>;

    Reduce(const ReductionLoops& loops, Fold fold, A identity)
        : kept_(cut<2>(loops.kept)), reduced_(cut<1>(loops.reduced)), fold_(fold), identity_(identity) {
        constexpr int64_t SIZE = sizeof(T);
        if (loops.reduced.numel == 0) reduced_.push_back(Piece<1>{});  // of no elements: the identity
        is_columns_ = loops.is_columns;
        const Loops& inner = is_columns_ ? loops.kept : loops.reduced;
        if (inner.ndim() == 0 || inner.strides[0].back() != SIZE || loops.reduced.numel == 0) return;
        is_line_ = !is_columns_ && loops.reduced.ndim() == 1 && inner.shape.back() >= 2 * VEC;
        has_packets_ = is_line_ || (is_regular(kept_, is_columns_, VEC) && is_regular(reduced_, !is_columns_, VEC));
    }

    void run(char* const* data, const Scalar*) const override {
        const bool is_vector = has_packets_ && (is_line_ || is_aligned(data[1], 16));
        for (const Piece<2>& kept : kept_) {
            char* out = data[0] + kept.start[1];
            const char* x = data[1] + kept.start[0];
            if (reduced_.size() == 1) {
                const Job job = plan(kept, reduced_[0], is_vector);
                if (job.r.chunks == 1) {
                    launch(job, x, {out, nullptr});
                    continue;
                }
            }
            run_in_parts(kept, is_vector, out, x);
        }
    }

private:
    Job plan(const Piece<2>& kept, const Piece<1>& reduced, bool is_vector) const {
        Job job;
        job.kind = !is_vector ? Job::any : is_columns_ ? Job::columns : Job::rows;
        job.r.kept = kept.layout;
        job.r.reduced = reduced.layout;
        job.r.fold = fold_;
        job.r.is_line = is_line_;
        job.start = reduced.start[0];
        job.out_stride = kept.layout.stride[1][0];
        if (job.kind == Job::columns) job.r.kept = in_packets(kept.layout, VEC);
        if (job.kind == Job::rows && !is_line_) job.r.reduced = in_packets(reduced.layout, VEC);
        if (job.kind == Job::rows) plan_rows(job, VEC);
        else plan_columns(job, !is_columns_);
        const bool are_plain = job.r.kept.ndim == 1 && job.r.reduced.ndim == 1 && job.r.reduced.numel >= MANY_ROWS;
        if (sizeof(T) == 2 && is_floating_ && job.kind == Job::columns && fold_ == Fold::sum && are_plain) {
            Job sums = job;
            sums.kind = Job::sums;
            plan_sums(sums);
            if (sums.r.chunks > 1) return sums;
        }
        return job;
    }

    void run_in_parts(const Piece<2>& kept, bool is_vector, char* out, const char* x) const {
        const int64_t outputs = kept.layout.numel;
        std::vector<Job> jobs;
        int64_t parts = 0;
        for (const Piece<1>& reduced : reduced_) {
            jobs.push_back(plan(kept, reduced, is_vector));
            parts += jobs.back().r.chunks;
        }
        const Scratch<A> scratch(parts * outputs);
        A* to = scratch.data();
        for (const Job& job : jobs) {
            launch(job, x, {nullptr, to});
            to += job.r.chunks * outputs;
        }
        combine_parts(kept, uint32_t(parts), reinterpret_cast<char*>(scratch.data()), out);
    }

    void combine_parts(const Piece<2>& kept, uint32_t parts, const char* from, char* out) const {
        Job job;
        job.r.kept = kept.layout;
        job.r.fold = fold_;
        int64_t stride = sizeof(A);
        for (int d = 0; d < kept.layout.ndim; ++d) {
            job.r.kept.stride[0][d] = stride;
            stride *= kept.layout.size[d].divisor;
        }
        job.r.reduced.numel = parts;
        job.r.reduced.ndim = 1;
        job.r.reduced.size[0] = FastDivide(parts);
        job.r.reduced.stride[0][0] = stride;
        const int64_t outputs = kept.layout.numel;
        job.threads.log_across = log2_up(outputs, parts > 64 ? 3 : 5);
        split(job, parts, 1, 1);
        job.blocks = ceil_div(outputs, int64_t(1) << job.threads.log_across);
        launch_kernel("a reduction's second stage", column_kernel<A, T, 1>, unsigned(job.blocks), THREADS,
                      job.r, job.threads, 0, from, Target<T>{out, nullptr}, identity_);
    }

    void launch(const Job& job, const char* x, Target<T> target) const {
        const unsigned blocks = unsigned(job.blocks);
        x += job.start;
        const char* what = "a reduction";
        if (job.kind == Job::rows)
            launch_kernel(what, row_kernel<T, VEC>, blocks, THREADS, job.r, job.log_group, x, target, identity_);
        else if (job.kind == Job::sums)
            launch_sums(job, x, target);
        else if (job.kind == Job::columns)
            launch_kernel(what, column_kernel<T, T, VEC>, blocks, THREADS, job.r, job.threads, job.out_stride, x, target,
                          identity_);
        else
            launch_kernel(what, column_kernel<T, T, 1>, blocks, THREADS, job.r, job.threads, 0, x, target, identity_);
    }

    void launch_sums(const Job& job, const char* x, Target<T> target) const {
        if constexpr (sizeof(T) == 2 && is_floating_)
            launch_kernel("sums of columns", column_sum_kernel<T>, dim3(unsigned(job.blocks), job.r.chunks),
                          dim3(SUM_WARPS * 32), x, job.r.reduced.stride[0][0], job.r.reduced.numel, job.r.kept.numel,
                          job.r.chunk, target.parts);
    }

    static constexpr bool is_floating_ = std::is_same_v<computed<T>, float>;
    static constexpr int64_t MANY_ROWS = 1024;

    std::vector<Piece<2>> kept_;
    std::vector<Piece<1>> reduced_;
    Fold fold_;
    A identity_;
    bool is_columns_ = false, is_line_ = false, has_packets_ = false;
};

template <class A>
A identity_of(Fold fold, bool is_empty) {
    using Limits = std::numeric_limits<A>;
    switch (fold) {
        case Fold::sum: return is_empty ? A(0) : A(-A(0));  // -0 keeps the sign of a sum of negative zeros
        case Fold::prod: return A(1);
        case Fold::max: return Limits::has_infinity ? A(-Limits::infinity()) : Limits::lowest();
        default: return Limits::has_infinity ? Limits::infinity() : Limits::max();
    }
}

/// On bools a sum is whether there is any, a product whether all are.
template <Fold fold>
KernelPtr reduce(const Request& request) {
    const Operand& x = request.operands[1];
    const ReductionLoops loops = reduction_loops(request.operands[0], x, request.attrs.integers("dims"));
    if (x.dtype == DType::boolean) {
        const bool is_any = fold == Fold::sum || fold == Fold::max;
        return std::make_unique<Reduce<uint8_t>>(loops, is_any ? Fold::max : Fold::min, is_any ? 0 : 1);
    }
    return visit_device(x.dtype, [&]<class T>(Tag<T>) -> KernelPtr {
        return std::make_unique<Reduce<T>>(loops, fold, identity_of<folded<T>>(fold, loops.reduced.numel == 0));
    });
}

template <Fold fold>
KernelPtr reduce_bool(const Request& request) {
    if (request.operands[1].dtype != DType::boolean) throw std::invalid_argument(request.op + " is of bool only");
    return reduce<fold>(request);
}

}  // namespace

void add_reductions(Registry& registry) {
    registry["sum"] = reduce<Fold::sum>;
    registry["prod"] = reduce<Fold::prod>;
    registry["amax"] = reduce<Fold::max>;
    registry["amin"] = reduce<Fold::min>;
    registry["any"] = reduce_bool<Fold::max>;
    registry["all"] = reduce_bool<Fold::min>;
}

}  // namespace norch::reduction
