// cuDNN, where it is installed. Its headers are not needed: what is used of its C interface is declared here, in graph.h
// and by whoever needs more of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "common/dtype.h"
#include "runtime/library.h"

namespace norch::cudnn {

using Status = int;
using Handle = struct cudnnContext*;
using Descriptor = void*;  // cudnnBackendDescriptor_t

struct Functions {
    size_t (*get_version)();
    const char* (*get_error_string)(Status);
    void (*get_last_error_string)(char* message, size_t size);
    Status (*create)(Handle*);
    Status (*set_stream)(Handle, cudaStream_t);
    Status (*create_descriptor)(int type, Descriptor*);
    Status (*destroy_descriptor)(Descriptor);
    Status (*finalize)(Descriptor);
    Status (*set_attribute)(Descriptor, int attribute, int type, int64_t count, const void* values);
    Status (*get_attribute)(Descriptor, int attribute, int type, int64_t most, int64_t* count, void* values);
    Status (*execute)(Handle, Descriptor plan, Descriptor variant_pack);
};

/// `norch.backends.cudnn`, read when a kernel is made.
struct Settings {
    bool is_enabled = true;
    bool is_deterministic = true;  // only engines that give the same bits in every run
    bool benchmarks = false;       // engines are timed
};
extern Settings settings;
/// Whether cuDNN is to be used and can be opened. The first call tries to.
bool is_usable();
/// Why it cannot be opened; empty where it can.
const std::string& unusable_reason();
/// Such as 91900 for 9.19.0. Throws where there is no cuDNN.
size_t version();

/// Opened when first asked for. Throws where there is no cuDNN.
const Functions& functions();
/// The same, for those of its functions that are not among these.
const Library& library();

/// A failed call.
struct Failure : std::runtime_error {
    Failure(Status status, const std::string& what);
    /// Whether it is only that cuDNN cannot do what it was asked for.
    bool is_refusal() const { return status >= 2000 && status < 4000; }
    Status status;
};
/// Throws Failure where a call failed: "cuDNN 9.19.0 failed " + `what` + why.
void check(Status status, const std::string& what);

/// The handle of a device, made when first asked for.
Handle handle_of(int device);
/// The handle of the device that the kernel now being launched runs on, whose work is given to its stream.
Handle launch_handle();

/// cudnnDataType_t of a floating dtype, int32, int64 or int8.
int data_type(DType dtype);
constexpr int FLOAT = 0;  // CUDNN_DATA_FLOAT, in which what is of 16 bits is computed

}  // namespace norch::cudnn
