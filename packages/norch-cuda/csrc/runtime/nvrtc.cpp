#include "runtime/nvrtc.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/library.h"
#include "runtime/runtime.h"

namespace norch {
namespace {

using Handle = void*;
struct Functions {
    int (*version)(int* major, int* minor);
    int (*create)(Handle*, const char* source, const char* name, int headers, const char* const* texts,
                  const char* const* names);
    int (*destroy)(Handle*);
    int (*compile)(Handle, int options, const char* const*);
    int (*cubin_size)(Handle, size_t*);
    int (*cubin)(Handle, char*);
};

/// NVRTC opens a second library by its name alone, which is found where it has been opened already: it lies beside.
void open_builtins(const Functions& nvrtc) {
    int major = 0, minor = 0;
    nvrtc.version(&major, &minor);
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(nvrtc.version), &info) || !info.dli_fname) return;
    const std::string name = "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
    dlopen((std::filesystem::path(info.dli_fname).parent_path() / name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// Null where it is not installed.
const Functions* library() {
    static const std::unique_ptr<const Functions> loaded = []() -> std::unique_ptr<const Functions> {
        try {
            const Library from("nvrtc", "libnvrtc.so.13", "compiled fused programs", "nvidia-cuda-nvrtc");
            Functions out;
            from.get(out.version, "nvrtcVersion");
            from.get(out.create, "nvrtcCreateProgram");
            from.get(out.destroy, "nvrtcDestroyProgram");
            from.get(out.compile, "nvrtcCompileProgram");
            from.get(out.cubin_size, "nvrtcGetCUBINSize");
            from.get(out.cubin, "nvrtcGetCUBIN");
            open_builtins(out);
            return std::make_unique<const Functions>(out);
        } catch (const std::runtime_error&) {
            return nullptr;
        }
    }();
    return loaded.get();
}

std::string compile(const Functions& nvrtc, const std::string& source, const std::string& architecture) {
    std::vector<const char*> texts, names;
    for (const HeaderText* header = runtime_headers; header->name; ++header) {
        texts.push_back(header->text);
        names.push_back(header->name);
    }
    Handle program = nullptr;
    if (nvrtc.create(&program, source.c_str(), "norch.cu", int(names.size()), texts.data(), names.data()) != 0) return "";
    const std::string target = "--gpu-architecture=" + architecture;
    const char* options[] = {target.c_str(), "-std=c++20", "-default-device"};
    std::string cubin;
    size_t size = 0;
    if (nvrtc.compile(program, int(std::size(options)), options) == 0 && nvrtc.cubin_size(program, &size) == 0) {
        cubin.resize(size);
        if (nvrtc.cubin(program, cubin.data()) != 0) cubin.clear();
    }
    nvrtc.destroy(&program);
    return cubin;
}

// --- On disk ----------------------------------------------------------------------------------------------------------

/// NORCH_CACHE_DIR, or the user's folder for caches; empty where there is none.
std::filesystem::path cache_folder() {
    auto from = [](const char* variable) {
        const char* value = std::getenv(variable);
        return std::filesystem::path(value ? value : "");
    };
    if (const auto own = from("NORCH_CACHE_DIR"); !own.empty()) return own;
    if (const auto users = from("XDG_CACHE_HOME"); users.is_absolute()) return users / "norch";
    if (const auto home = from("HOME"); home.is_absolute()) return home / ".cache" / "norch";
    return {};
}

/// FNV-1a (G. Fowler, L. Noll and K.-P. Vo), as a name: a file holds the whole key too.
std::string hash_of(const std::string& key) {
    uint64_t hash = 14695981039346656037u;
    for (unsigned char c : key) hash = (hash ^ c) * 1099511628211u;
    std::string out;
    for (int i = 60; i >= 0; i -= 4) out += "0123456789abcdef"[hash >> i & 15];
    return out;
}

std::string read_cached(const std::filesystem::path& file, const std::string& key) {
    std::ifstream in(file, std::ios::binary);
    std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (all.size() <= key.size() || all.compare(0, key.size(), key) != 0) return "";
    return all.substr(key.size());
}

void write_cached(const std::filesystem::path& file, const std::string& key, const std::string& cubin) {
    std::error_code failed;  // then it is compiled again next time
    std::filesystem::create_directories(file.parent_path(), failed);
    const std::filesystem::path part = file.string() + "." + std::to_string(getpid());
    std::ofstream out(part, std::ios::binary);
    out << key << cubin;
    out.close();
    if (out) std::filesystem::rename(part, file, failed);
    if (!out || failed) std::filesystem::remove(part, failed);
}

const void* load(const std::string& cubin, const char* name) {
    const RelaxedCapture relaxed;
    cudaLibrary_t library = nullptr;
    cudaKernel_t kernel = nullptr;
    if (!cubin.empty() &&
        cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0) == cudaSuccess &&
        cudaLibraryGetKernel(&kernel, library, name) == cudaSuccess)
        return reinterpret_cast<const void*>(kernel);
    cudaGetLastError();
    return nullptr;
}

}  // namespace

const void* runtime_kernel(const std::string& source, const char* name, int device) {
    static std::unordered_map<std::string, const void*> known;
    static const bool is_wanted = std::getenv("NORCH_CUDA_NVRTC");
    if (!is_wanted) return nullptr;
    const bool traces = std::getenv("NORCH_CUDA_NVRTC_TRACE");
    auto trace = [&](const char* what) {
        if (traces) std::fprintf(stderr, "nvrtc: %s\n", what);
    };
    trace("library");
    const Functions* nvrtc = library();
    if (!nvrtc) return nullptr;
    int major = 0, minor = 0;
    nvrtc->version(&major, &minor);
    trace(("version " + std::to_string(major) + "." + std::to_string(minor)).c_str());
    const std::string architecture =
        "sm_" + std::to_string(properties(device).major) + std::to_string(properties(device).minor);
    std::string key = "norch-cuda nvrtc " + std::to_string(major) + "." + std::to_string(minor) + " " + architecture + "\n";
    for (const HeaderText* header = runtime_headers; header->name; ++header) key += hash_of(header->text);
    key += "\n" + source + '\0';
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
    const std::filesystem::path folder = cache_folder(), file = folder / (hash_of(key) + ".cubin");
    const void* kernel = folder.empty() ? nullptr : load(read_cached(file, key), name);
    if (!kernel) {
        trace("compile");
        const std::string cubin = compile(*nvrtc, source, architecture);
        trace(("load " + std::to_string(cubin.size())).c_str());
        kernel = load(cubin, name);
        trace(kernel ? "loaded" : "not loaded");
        if (kernel && !folder.empty()) write_cached(file, key, cubin);
    }
    trace("written");
    known[key] = kernel;
    return kernel;
}

}  // namespace norch
