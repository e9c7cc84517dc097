// Products of integers: rare, so one way for every layout and size.
#pragma once

#include "matmul/gemm.h"

namespace norch::matmul {

/// Like Product<T>, for T uint32_t or uint64_t, whose overflow is defined. An epilogue has no activation.
template <class T>
class IntegerProduct {
public:
    using Number = T;

    IntegerProduct(int64_t m, int64_t n, int64_t k, MatrixStrides a, MatrixStrides b, MatrixStrides c);

    void run(const T* a, const T* b, T* c, const Epilogue<T>& epilogue = {}) const;
    int64_t pieces() const { return row_pieces_ * column_pieces_; }
    double piece_ns() const { return piece_ns_; }
    void run_pieces(int64_t first, int64_t last, const T* a, const T* b, T* c, const Epilogue<T>& epilogue = {}) const;

private:
    struct Area {
        int64_t top, bottom, left, right;
    };
    void dots(const Area& area, const T* a, const T* b, T* c, const T* bias) const;
    void panels(const Area& area, const T* a, const T* b, T* c, const T* bias) const;
    template <int ROWS>
    void tile(const T* a, int64_t steps, const T* panel, T* c, int64_t width, const T* start, bool adds) const;

    int64_t m_, n_, k_;
    MatrixStrides a_, b_, c_;
    int64_t row_pieces_, column_pieces_;
    double piece_ns_;
};

extern template class IntegerProduct<uint32_t>;
extern template class IntegerProduct<uint64_t>;

}  // namespace norch::matmul
