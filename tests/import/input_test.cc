// Compressed text reads as the text, whatever the file is called; every cut of it is said and nothing of it
// invented.
#include "import_text/input.h"

#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <vector>

namespace tlbscope::import {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes plain(const std::string& text) { return {text.begin(), text.end()}; }

Bytes gzip(const std::string& text) {
    z_stream stream{};
    EXPECT_EQ(::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    Bytes out(text.size() + 256);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = out.data();
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
    out.resize(stream.total_out);
    ::deflateEnd(&stream);
    return out;
}

Bytes xz(const std::string& text) {
    Bytes out(text.size() + 512);
    std::size_t size = 0;
    EXPECT_EQ(::lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, nullptr, plain(text).data(), text.size(),
                                        out.data(), &size, out.size()),
              LZMA_OK);
    out.resize(size);
    return out;
}

Bytes zstd(const std::string& text) {
    Bytes out(::ZSTD_compressBound(text.size()));
    out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
}

struct Read {
    std::vector<std::string> lines;
    std::string error;
};

Read read(const Bytes& bytes) {
    Lines lines(Input::of_bytes("x", bytes).value());
    Read read;
    for (;;) {
        const auto line = lines.next();
        if (!line) {
            read.error = line.error().what;
            break;
        }
        if (!*line) break;
        read.lines.emplace_back(**line);
    }
    EXPECT_EQ(lines.number(), read.lines.size());
    return read;
}

std::string long_text() {
    std::string text;
    for (int n = 0; n < 20000; ++n) text += "line " + std::to_string(n * 2654435761U) + "\n";
    return text;
}

TEST(Input, ReadsEveryCompression) {
    const std::string text = long_text();
    const Read wanted = read(plain(text));
    ASSERT_EQ(wanted.lines.size(), 20000U);
    ASSERT_EQ(wanted.error, "");
    for (const auto& pack : {gzip, xz, zstd}) {
        const Read once = read(pack(text));
        EXPECT_EQ(once.lines, wanted.lines);
        EXPECT_EQ(once.error, "");
        // Two streams in one file are their texts in a row.
        Bytes twice = pack(text);
        const Bytes again = pack(text);
        twice.insert(twice.end(), again.begin(), again.end());
        const Read both = read(twice);
        EXPECT_EQ(both.lines.size(), 2 * wanted.lines.size());
        EXPECT_EQ(both.error, "");
    }
}

TEST(Input, SaysWhereTheDataEnd) {
    const std::string text = long_text();
    for (const auto& pack : {gzip, xz, zstd}) {
        const Bytes whole = pack(text);
        for (const std::size_t size : {whole.size() / 3, whole.size() / 2, whole.size() - 1}) {
            const Read cut = read(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
            EXPECT_EQ(cut.error, "the compressed data end in the middle");
            for (std::size_t n = 0; n + 1 < cut.lines.size(); ++n)
                ASSERT_EQ(cut.lines[n], "line " + std::to_string(static_cast<int>(n) * 2654435761U));
        }
        Bytes bad = whole;
        bad[bad.size() / 2] ^= 0x55;
        bad[bad.size() / 2 + 1] ^= 0x55;
        EXPECT_NE(read(bad).error, "");
    }
}

TEST(Input, TakesLinesAsTheyCome) {
    EXPECT_TRUE(read({}).lines.empty());
    EXPECT_EQ(read(plain("a\r\n\nb")).lines, (std::vector<std::string>{"a", "", "b"}));
    const Read huge = read(plain(std::string(3 << 20, 'x') + "\nnext\n"));
    ASSERT_EQ(huge.lines.size(), 2U);
    EXPECT_EQ(huge.lines[0].size(), Lines::kLongest);
    EXPECT_EQ(huge.lines[1], "next");
}

}  // namespace
}  // namespace tlbscope::import
