/* dd for guests of architectures that have no distribution any more: dd if=FILE of=FILE bs=N[k|M] count=N.
 *
 * One read and one write a block, like the dd of coreutils without conversions; it prints the same two lines
 * of records at the end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* value(const char* argument, const char* name) {
    const size_t n = strlen(name);
    return strncmp(argument, name, n) == 0 && argument[n] == '=' ? argument + n + 1 : NULL;
}

static unsigned long number(const char* text) {
    char* end;
    unsigned long n = strtoul(text, &end, 10);
    if (*end == 'k' || *end == 'K') n <<= 10, ++end;
    if (*end == 'M') n <<= 20, ++end;
    if (end == text || *end != 0) {
        fprintf(stderr, "dd: invalid number: '%s'\n", text);
        exit(1);
    }
    return n;
}

static void fail(const char* doing, const char* name) {
    fprintf(stderr, "dd: %s '%s': %s\n", doing, name, strerror(errno));
    exit(1);
}

int main(int argc, char** argv) {
    const char *in_name = "/dev/stdin", *out_name = "/dev/stdout", *v;
    int in = 0, out = 1;
    unsigned long block = 512, count = ~0UL, full[2] = {0, 0}, part[2] = {0, 0};
    for (int i = 1; i < argc; ++i) {
        if ((v = value(argv[i], "if")))
            in_name = v, in = -1;
        else if ((v = value(argv[i], "of")))
            out_name = v, out = -1;
        else if ((v = value(argv[i], "bs")))
            block = number(v);
        else if ((v = value(argv[i], "count")))
            count = number(v);
        else {
            fprintf(stderr, "dd: unrecognized operand '%s'\n", argv[i]);
            return 1;
        }
    }
    if (block == 0) {
        fprintf(stderr, "dd: invalid number: '0'\n");
        return 1;
    }
    if (in < 0 && (in = open(in_name, O_RDONLY)) < 0) fail("failed to open", in_name);
    if (out < 0 && (out = open(out_name, O_WRONLY | O_CREAT | O_TRUNC, 0666)) < 0)
        fail("failed to open", out_name);
    char* buffer = malloc(block);
    if (!buffer) fail("no memory for", "the buffer");
    for (unsigned long i = 0; i < count; ++i) {
        const ssize_t got = read(in, buffer, block);
        if (got < 0) fail("error reading", in_name);
        if (got == 0) break;
        ++((size_t)got == block ? full : part)[0];
        const ssize_t put = write(out, buffer, (size_t)got);
        if (put != got) fail("error writing", out_name);
        ++((size_t)put == block ? full : part)[1];
    }
    fprintf(stderr, "%lu+%lu records in\n%lu+%lu records out\n", full[0], part[0], full[1], part[1]);
    return 0;
}
