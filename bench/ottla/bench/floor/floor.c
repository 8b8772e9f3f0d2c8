/* Smallest server that makes a broker's system calls on the same bytes.
 *
 * floor produce FILE ANSWER RECORDS_AT RECORDS_BYTES
 * floor fetch   FILE ANSWER RECORDS_AT RECORDS_BYTES
 *
 * It prints its port, then answers every frame with the bytes of the file ANSWER. It decodes only
 * the length of a frame. `produce` first appends RECORDS_BYTES of the frame, from RECORDS_AT, to
 * FILE. `fetch` sends RECORDS_BYTES of the answer, from RECORDS_AT, out of FILE: few bytes from
 * memory, as a broker does that has read them for another client, up to 128 KiB by pread and one
 * call with the bytes around them, more by sendfile.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENTS 256
#define READ_BYTES (256 * 1024)
#define FRAME_BYTES_MAX (4 * 1024 * 1024)
#define SMALL_BYTES_MAX 2048
#define COPIED_BYTES_MAX (128 * 1024)
#define SOCKETS_MAX 4096

struct input {
    char *bytes;
    size_t size;
};

static struct input inputs[SOCKETS_MAX];
static char *answer, *output;
static size_t answer_bytes, records_at, records_bytes, output_capacity;
static int file, is_produce;
static off_t end_of_file;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void *room(void *before, size_t size)
{
    void *found = realloc(before, size);
    if (found == NULL)
        fail("realloc");
    return found;
}

static void wait_for_room(int client)
{
    struct pollfd wait = {.fd = client, .events = POLLOUT};
    poll(&wait, 1, -1);
}

static int send_bytes(int client, const char *bytes, size_t size, int flags)
{
    while (size) {
        ssize_t sent = send(client, bytes, size, flags | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return -1;
        if (sent < 0) {
            wait_for_room(client);
            continue;
        }
        bytes += sent;
        size -= sent;
    }
    return 0;
}

static int send_records(int client)
{
    off_t at = 0;
    size_t tail_at = records_at + records_bytes;
    if (records_bytes <= COPIED_BYTES_MAX) {
        if (pread(file, answer + records_at, records_bytes, at) != (ssize_t)records_bytes)
            fail("pread");
        return send_bytes(client, answer, answer_bytes, 0);
    }
    if (send_bytes(client, answer, records_at, MSG_MORE) < 0)
        return -1;
    while ((size_t)at < records_bytes) {
        ssize_t sent = sendfile(client, file, &at, records_bytes - at);
        if (sent < 0 && errno != EAGAIN)
            return -1;
        if (sent < 0)
            wait_for_room(client);
    }
    return send_bytes(client, answer + tail_at, answer_bytes - tail_at, 0);
}

static void append(const char *frame, size_t frame_bytes)
{
    if (records_at + records_bytes > frame_bytes) {
        fprintf(stderr, "a frame of %zu bytes is too short\n", frame_bytes);
        exit(1);
    }
    if (pwrite(file, frame + records_at, records_bytes, end_of_file) != (ssize_t)records_bytes)
        fail("pwrite");
    end_of_file += records_bytes;
}

/* Answer the complete frames of a client. Returns -1 if the client has left. */
static int serve(int client, struct input *in)
{
    size_t at = 0, count = 0;
    while (in->size - at >= 4) {
        uint32_t length;
        memcpy(&length, in->bytes + at, 4);
        size_t frame_bytes = 4 + (size_t)ntohl(length);
        if (frame_bytes > FRAME_BYTES_MAX)
            return -1;
        if (in->size - at < frame_bytes)
            break;
        if (is_produce)
            append(in->bytes + at, frame_bytes);
        at += frame_bytes;
        if (is_produce || records_bytes <= SMALL_BYTES_MAX)
            count++;
        else if (send_records(client) < 0)
            return -1;
    }
    memmove(in->bytes, in->bytes + at, in->size - at);
    in->size -= at;
    if (count == 0)
        return 0;
    if (count == 1)
        return send_bytes(client, answer, answer_bytes, 0);
    if (count * answer_bytes > output_capacity)
        output = room(output, output_capacity = count * answer_bytes);
    for (size_t i = 0; i < count; i++)
        memcpy(output + i * answer_bytes, answer, answer_bytes);
    return send_bytes(client, output, count * answer_bytes, 0);
}

static void on_client(int client)
{
    struct input *in = &inputs[client];
    size_t left = FRAME_BYTES_MAX + READ_BYTES - in->size;
    ssize_t got = recv(client, in->bytes + in->size, left < READ_BYTES ? left : READ_BYTES, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got > 0) {
        in->size += got;
        if (serve(client, in) == 0)
            return;
    }
    close(client);
    in->size = 0;
}

static void on_connect(int listener, int epoll)
{
    int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0)
        return;
    if (client >= SOCKETS_MAX) {
        close(client);
        return;
    }
    int on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = client};
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (inputs[client].bytes == NULL)
        inputs[client].bytes = room(NULL, FRAME_BYTES_MAX + READ_BYTES);
    epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event);
}

static int listening(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = 0};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 ||
        listen(listener, 128) < 0 || getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        fail("listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static void load_answer(const char *path)
{
    struct stat stat;
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0 || fstat(opened, &stat) < 0)
        fail(path);
    answer_bytes = stat.st_size;
    answer = room(NULL, answer_bytes);
    if (read(opened, answer, answer_bytes) != (ssize_t)answer_bytes)
        fail(path);
    close(opened);
}

int main(int count, char **arguments)
{
    if (count != 6) {
        fprintf(stderr, "usage: floor produce|fetch FILE ANSWER RECORDS_AT RECORDS_BYTES\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    is_produce = strcmp(arguments[1], "produce") == 0;
    file = open(arguments[2], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        fail(arguments[2]);
    load_answer(arguments[3]);
    records_at = strtoul(arguments[4], NULL, 10);
    records_bytes = strtoul(arguments[5], NULL, 10);
    if (!is_produce && records_at + records_bytes > answer_bytes) {
        fprintf(stderr, "the answer is too short\n");
        return 2;
    }

    int listener = listening(), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN, .data.fd = listener};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0)
        fail("epoll");
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd == listener)
                on_connect(listener, epoll);
            else
                on_client(events[i].data.fd);
        }
    }
}
