#include "import_text/input.h"

#include <fcntl.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <expected>
#include <utility>

namespace tlbscope::import {

namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10;

// The bytes as they are in the file, with a look ahead at the first of them.
class Source {
  public:
    explicit Source(int fd) : fd_(fd) {}
    explicit Source(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;
    ~Source() {
        if (fd_ > 0) ::close(fd_);
    }
    // The next bytes, none at the end; an errno when reading failed.
    std::expected<std::span<const std::uint8_t>, int> next() {
        if (fd_ < 0) return std::exchange(bytes_, {});
        if (peeked_ != 0) return std::span<const std::uint8_t>(buffer_).first(std::exchange(peeked_, 0));
        return fill(0);
    }
    // The first bytes, up to six, without taking them.
    std::expected<std::span<const std::uint8_t>, int> peek() {
        if (fd_ < 0) return bytes_.first(std::min<std::size_t>(bytes_.size(), 6));
        while (peeked_ < 6) {
            const auto more = fill(peeked_);
            if (!more) return more;
            if (more->empty()) break;
            peeked_ += more->size();
        }
        return std::span<const std::uint8_t>(buffer_).first(std::min<std::size_t>(peeked_, 6));
    }

  private:
    std::expected<std::span<const std::uint8_t>, int> fill(std::size_t from) {
        for (;;) {
            const ssize_t n = ::read(fd_, buffer_.data() + from, buffer_.size() - from);
            if (n >= 0)
                return std::span<const std::uint8_t>(buffer_).subspan(from, static_cast<std::size_t>(n));
            if (errno != EINTR) return std::unexpected(errno);
        }
    }
    int fd_ = -1;
    std::span<const std::uint8_t> bytes_;
    std::array<std::uint8_t, kChunk> buffer_;
    std::size_t peeked_ = 0;
};

enum class Step { kMore, kEnd, kDamaged };

// A decompressor: takes what it can from `in`, puts what it can into `out`.
class Decoder {
  public:
    virtual ~Decoder() = default;
    // `last`: nothing follows `in`. kEnd: the stream is complete and `in` is used up.
    virtual Step step(std::span<const std::uint8_t>& in, std::span<std::uint8_t>& out, bool last) = 0;
};

class Plain : public Decoder {
  public:
    Step step(std::span<const std::uint8_t>& in, std::span<std::uint8_t>& out, bool last) override {
        const std::size_t n = std::min(in.size(), out.size());
        if (n != 0) std::memcpy(out.data(), in.data(), n);
        in = in.subspan(n);
        out = out.subspan(n);
        return last && in.empty() ? Step::kEnd : Step::kMore;
    }
};

class Gzip : public Decoder {
  public:
    Gzip() { ok_ = ::inflateInit2(&stream_, 15 + 16) == Z_OK; }
    ~Gzip() override { ::inflateEnd(&stream_); }
    Gzip(const Gzip&) = delete;
    Gzip& operator=(const Gzip&) = delete;
    Step step(std::span<const std::uint8_t>& in, std::span<std::uint8_t>& out, bool last) override {
        if (!ok_) return Step::kDamaged;
        if (between_) {
            if (in.empty()) return last ? Step::kEnd : Step::kMore;
            if (::inflateReset(&stream_) != Z_OK) return Step::kDamaged;  // another member follows
            between_ = false;
        }
        stream_.next_in = const_cast<Bytef*>(in.data());
        stream_.avail_in = static_cast<uInt>(std::min<std::size_t>(in.size(), 1U << 30));
        stream_.next_out = out.data();
        stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1U << 30));
        const uInt given = stream_.avail_in;
        const uInt room = stream_.avail_out;
        const int code = ::inflate(&stream_, Z_NO_FLUSH);
        in = in.subspan(given - stream_.avail_in);
        out = out.subspan(room - stream_.avail_out);
        if (code == Z_STREAM_END) {
            between_ = true;
            return last && in.empty() ? Step::kEnd : Step::kMore;
        }
        if (code != Z_OK && code != Z_BUF_ERROR) return Step::kDamaged;
        return last && in.empty() && stream_.avail_out != 0 ? Step::kDamaged : Step::kMore;
    }

  private:
    z_stream stream_{};
    bool ok_ = false;
    bool between_ = false;
};

class Xz : public Decoder {
  public:
    Xz() { ok_ = ::lzma_stream_decoder(&stream_, std::uint64_t{1} << 30, LZMA_CONCATENATED) == LZMA_OK; }
    ~Xz() override { ::lzma_end(&stream_); }
    Xz(const Xz&) = delete;
    Xz& operator=(const Xz&) = delete;
    Step step(std::span<const std::uint8_t>& in, std::span<std::uint8_t>& out, bool last) override {
        if (!ok_) return Step::kDamaged;
        stream_.next_in = in.data();
        stream_.avail_in = in.size();
        stream_.next_out = out.data();
        stream_.avail_out = out.size();
        const lzma_ret code = ::lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
        in = in.subspan(in.size() - stream_.avail_in);
        out = out.subspan(out.size() - stream_.avail_out);
        if (code == LZMA_STREAM_END) return Step::kEnd;
        return code == LZMA_OK ? Step::kMore : Step::kDamaged;
    }

  private:
    lzma_stream stream_ = LZMA_STREAM_INIT;
    bool ok_ = false;
};

class Zstd : public Decoder {
  public:
    Zstd() : stream_(::ZSTD_createDStream()) {}
    ~Zstd() override { ::ZSTD_freeDStream(stream_); }
    Zstd(const Zstd&) = delete;
    Zstd& operator=(const Zstd&) = delete;
    Step step(std::span<const std::uint8_t>& in, std::span<std::uint8_t>& out, bool last) override {
        if (stream_ == nullptr) return Step::kDamaged;
        if (in.empty() && between_) return last ? Step::kEnd : Step::kMore;
        ZSTD_inBuffer input{in.data(), in.size(), 0};
        ZSTD_outBuffer output{out.data(), out.size(), 0};
        const std::size_t code = ::ZSTD_decompressStream(stream_, &output, &input);
        if (::ZSTD_isError(code) != 0) return Step::kDamaged;
        in = in.subspan(input.pos);
        out = out.subspan(output.pos);
        between_ = code == 0;
        if (!last || !in.empty()) return Step::kMore;
        if (between_) return Step::kEnd;
        return out.empty() ? Step::kMore : Step::kDamaged;
    }

  private:
    ZSTD_DStream* stream_;
    bool between_ = false;
};

std::unique_ptr<Decoder> decoder_of(std::span<const std::uint8_t> first) {
    const auto begins = [&](std::initializer_list<std::uint8_t> magic) {
        return first.size() >= magic.size() && std::equal(magic.begin(), magic.end(), first.begin());
    };
    if (begins({0x1f, 0x8b})) return std::make_unique<Gzip>();
    if (begins({0xfd, '7', 'z', 'X', 'Z', 0})) return std::make_unique<Xz>();
    if (begins({0x28, 0xb5, 0x2f, 0xfd})) return std::make_unique<Zstd>();
    return std::make_unique<Plain>();
}

}  // namespace

struct Input::State {
    State(std::string its_name, int fd) : name(std::move(its_name)), source(fd) {}
    State(std::string its_name, std::span<const std::uint8_t> bytes)
        : name(std::move(its_name)), source(bytes) {}

    std::string name;
    Source source;
    std::unique_ptr<Decoder> decoder;
    std::span<const std::uint8_t> pending;  // read from the source, not decoded yet
    bool source_ended = false;
    bool ended = false;
    std::optional<Error> error;  // what to say once everything before it is handed out
};

Input::Input(std::unique_ptr<State> state) : state_(std::move(state)) {}
Input::Input(Input&&) noexcept = default;
Input& Input::operator=(Input&&) noexcept = default;
Input::~Input() = default;

const std::string& Input::name() const { return state_->name; }

Result<Input> Input::open(const std::string& name) {
    const int fd = name == "-" ? ::dup(0) : ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    const std::string shown = name == "-" ? "standard input" : name;
    if (fd < 0) return system_error(shown, "cannot open", errno);
    auto state = std::make_unique<State>(shown, fd);
    const auto first = state->source.peek();
    if (!first) return system_error(shown, "cannot read", first.error());
    state->decoder = decoder_of(*first);
    return Input(std::move(state));
}

Result<Input> Input::of_bytes(std::string name, std::span<const std::uint8_t> bytes) {
    auto state = std::make_unique<State>(std::move(name), bytes);
    state->decoder = decoder_of(*state->source.peek());
    return Input(std::move(state));
}

Result<std::size_t> Input::read(std::span<std::uint8_t> into) {
    State& state = *state_;
    const std::size_t wanted = into.size();
    while (!into.empty() && !state.ended) {
        if (state.pending.empty() && !state.source_ended) {
            const auto more = state.source.next();
            if (!more) {
                state.error = system_error(state.name, "cannot read", more.error()).error();
                state.ended = true;
                break;
            }
            state.pending = *more;
            state.source_ended = more->empty();
        }
        switch (state.decoder->step(state.pending, into, state.source_ended)) {
            case Step::kMore:
                break;
            case Step::kEnd:
                state.ended = true;
                break;
            case Step::kDamaged:
                state.error = fail(state.name,
                                   state.source_ended ? "the compressed data end in the middle"
                                                      : "the compressed data are damaged",
                                   "make it again; what came before was used")
                                  .error();
                state.ended = true;
        }
    }
    const std::size_t got = wanted - into.size();
    if (got == 0 && state.error) return std::unexpected(*state.error);
    return got;
}

Result<std::optional<std::string_view>> Lines::next() {
    line_.clear();
    bool any = false;
    while (!ended_) {
        if (at_ == size_) {
            auto got = input_.read(buffer_);
            if (!got) {
                ended_ = true;
                error_ = got.error();
                break;
            }
            at_ = 0;
            size_ = *got;
            if (size_ == 0) {
                ended_ = true;
                break;
            }
        }
        const std::uint8_t* const start = buffer_.data() + at_;
        const auto* const end = static_cast<const std::uint8_t*>(std::memchr(start, '\n', size_ - at_));
        const std::size_t length = end == nullptr ? size_ - at_ : static_cast<std::size_t>(end - start);
        line_.append(reinterpret_cast<const char*>(start),
                     std::min(length, kLongest - std::min(kLongest, line_.size())));
        any = true;
        at_ += length + (end == nullptr ? 0 : 1);
        if (end != nullptr) break;
    }
    // What stands before the damage is a line, if perhaps not a whole one; the next call tells of the damage.
    if (!any && error_) return std::unexpected(*std::exchange(error_, {}));
    if (!any) return std::optional<std::string_view>{};
    ++number_;
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    return std::optional<std::string_view>(line_);
}

}  // namespace tlbscope::import
