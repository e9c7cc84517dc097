#include "cudnn/library.h"

#include <optional>
#include <stdexcept>
#include <vector>

#include "runtime/runtime.h"

namespace norch::cudnn {

Settings settings;

namespace {

constexpr const char *FILE_NAME = "libcudnn.so.9", *PURPOSE = "kernels of cuDNN", *PACKAGE = "norch-cuda[cudnn]";

/// cuDNN opens parts of itself, from beside it, and these two by name, which finds them where they are open already.
void open_what_it_needs() {
    for (auto [name, file] : {std::pair("cublasLt", "libcublasLt.so.13"), std::pair("nvrtc", "libnvrtc.so.13")}) {
        try {
            const Library opened(name, file, PURPOSE, PACKAGE);
        } catch (const std::runtime_error&) {  // most of cuDNN does without
        }
    }
}

struct Opened {
    std::optional<Library> library;
    Functions functions = {};
    std::string reason;

    Opened() {
        try {
            open_what_it_needs();
            library.emplace("cudnn", FILE_NAME, PURPOSE, PACKAGE);
            auto get = [this](auto& function, const char* name) { library->get(function, name); };
            get(functions.get_version, "cudnnGetVersion");
            get(functions.get_error_string, "cudnnGetErrorString");
            get(functions.get_last_error_string, "cudnnGetLastErrorString");
            get(functions.create, "cudnnCreate");
            get(functions.set_stream, "cudnnSetStream");
            get(functions.create_descriptor, "cudnnBackendCreateDescriptor");
            get(functions.destroy_descriptor, "cudnnBackendDestroyDescriptor");
            get(functions.finalize, "cudnnBackendFinalize");
            get(functions.set_attribute, "cudnnBackendSetAttribute");
            get(functions.get_attribute, "cudnnBackendGetAttribute");
            get(functions.execute, "cudnnBackendExecute");
        } catch (const std::runtime_error& error) {
            reason = error.what();
        }
    }
};

const Opened& opened() {
    static const Opened instance;
    return instance;
}

const Opened& usable() {
    if (!opened().reason.empty()) throw std::runtime_error(opened().reason);
    return opened();
}

std::string message_of(Status status, const std::string& what) {
    const size_t v = version();
    char last[512] = "";
    functions().get_last_error_string(last, sizeof last);
    std::string out = "cuDNN " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
                      std::to_string(v % 100) + " failed " + what + ": " + functions().get_error_string(status);
    return *last ? out + " (" + last + ")" : out;
}

struct DeviceHandle {
    Handle handle = nullptr;
    cudaStream_t stream = nullptr;
};
DeviceHandle& device_handle(int device) {
    static auto* all = new std::vector<DeviceHandle>;  // never destroyed, as that would wait for a device that may be gone
    if (all->size() <= size_t(device)) all->resize(size_t(device) + 1);
    DeviceHandle& found = (*all)[size_t(device)];
    if (!found.handle) {
        const RelaxedCapture relaxed;
        bind(device);
        check(functions().create(&found.handle), "to start");
    }
    return found;
}

}  // namespace

bool is_usable() { return settings.is_enabled && opened().reason.empty(); }
const std::string& unusable_reason() { return opened().reason; }
size_t version() { return functions().get_version(); }
const Functions& functions() { return usable().functions; }
const Library& library() { return *usable().library; }

Failure::Failure(Status status, const std::string& what)
    : std::runtime_error(message_of(status, what)), status(status) {}

void check(Status status, const std::string& what) {
    if (status != 0) throw Failure(status, what);
}

Handle handle_of(int device) { return device_handle(device).handle; }

Handle launch_handle() {
    DeviceHandle& found = device_handle(launch_stream().device);
    const cudaStream_t stream = stream_handle();
    if (found.stream != stream) {
        check(functions().set_stream(found.handle, stream), "to change streams");
        found.stream = stream;
    }
    return found.handle;
}

int data_type(DType dtype) {
    switch (dtype) {
        case DType::f64: return 1;
        case DType::f32: return 0;
        case DType::f16: return 2;
        case DType::bf16: return 9;
        case DType::i8: return 3;
        case DType::i32: return 4;
        case DType::i64: return 10;
        default: throw std::invalid_argument("cuDNN has no such dtype");
    }
}

}  // namespace norch::cudnn
