// Copies between host and device, and the pinned host memory that makes them asynchronous.
#pragma once

#include <Python.h>

#include <cstddef>

#include "common/buffer.h"

namespace norch {

/// Host to device: returns as soon as `data` may be changed, which is before the copy is done. Large data that is not
/// pinned waits for the driver. `owner` is kept alive until then where the copy reads `data` itself.
void copy_in(Buffer* buffer, size_t offset, const char* data, size_t nbytes, PyObject* owner);
/// Device to host: waits for all earlier work of the current stream, then raises what kernels reported.
void copy_out(Buffer* buffer, size_t offset, char* data, size_t nbytes);
/// The same without waiting where `data` is pinned; `owner` is kept alive until the copy is done.
void copy_out_later(Buffer* buffer, size_t offset, char* data, size_t nbytes, PyObject* owner);
/// Between two buffers, which may lie on two devices.
void copy_between(Buffer* out, size_t out_offset, Buffer* source, size_t source_offset, size_t nbytes);

/// Page-locked host memory, kept for later once given back. Throws OutOfMemory.
char* allocate_pinned(size_t nbytes);
void release_pinned(char* data) noexcept;
bool is_pinned(const char* data);
size_t pinned_bytes();
/// Returns pinned memory that is not in use to the system.
void empty_pinned_cache();

}  // namespace norch
