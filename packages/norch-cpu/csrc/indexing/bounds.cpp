#include "indexing/bounds.h"

#include <atomic>

#include "runtime/parallel.h"

namespace norch::indexing {
namespace {

constexpr double NS = 0.3;

Operand without_broadcast_dims(const Operand& operand) {
    Operand out = operand;
    for (int d = 0; d < out.ndim(); ++d)
        if (out.strides[d] == 0 && out.shape[d] > 1) out.shape[d] = 1;
    return out;
}

inline int64_t at(const char* data, int64_t offset) { return *reinterpret_cast<const int64_t*>(data + offset); }

}  // namespace

Bounds::Bounds(const Operand& index, int64_t low, int64_t size)
    : operand_(index), loops_(collapse({without_broadcast_dims(index)})), low_(low), size_(size) {
    int nd = loops_.ndim();
    if (nd) {
        columns_ = loops_.shape[nd - 1];
        column_ = loops_.strides[0][nd - 1];
    }
    rows_ = columns_ ? loops_.numel / columns_ : 0;
}

double Bounds::work() const { return double(loops_.numel) * NS; }

bool Bounds::any_wrong(const char* index, int64_t begin, int64_t end) const {
    uint64_t span = uint64_t(size_ - low_), wrong = 0;
    if (column_ == 8) {
        const int64_t* row = reinterpret_cast<const int64_t*>(index);
        for (int64_t i = begin; i < end; ++i) wrong |= uint64_t(row[i] - low_) >= span;
    } else {
        for (int64_t i = begin; i < end; ++i) wrong |= uint64_t(at(index, i * column_) - low_) >= span;
    }
    return wrong;
}

void Bounds::check(const char* index) const {
    if (!loops_.numel) return;
    std::atomic<bool> wrong{false};
    if (rows_ == 1) {
        parallel_for(columns_, NS, [&](int64_t begin, int64_t end) {
            if (any_wrong(index, begin, end)) wrong = true;
        });
    } else {
        parallel_for(rows_, NS * double(columns_), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                const char* row = index;
                loops_.move(&row, loops_.ndim() - 1, r);
                if (any_wrong(row, 0, columns_)) wrong = true;
            }
        });
    }
    if (wrong) raise(index);
}

void Bounds::raise(const char* index) const {
    int nd = operand_.ndim();
    std::vector<int64_t> place(size_t(nd), 0);
    for (;;) {
        int64_t offset = 0;
        for (int d = 0; d < nd; ++d) offset += place[d] * operand_.strides[d] * 8;
        int64_t found = at(index, offset);
        if (found < low_ || found >= size_) throw IndexOutOfBounds(found, size_);
        int d = nd - 1;
        while (d >= 0 && ++place[d] == operand_.shape[d]) place[d--] = 0;
        // Only reached where another thread has changed the index meanwhile.
        if (d < 0) throw IndexOutOfBounds(found, size_);
    }
}

}  // namespace norch::indexing
