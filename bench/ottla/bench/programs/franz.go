// Writes or reads records with franz-go's default settings, and prints the seconds as JSON.
// Arguments: "produce" or "consume", bootstrap address, topic, number of records, bytes of a value.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Writes one record, then the measured ones. Returns the seconds until all are acknowledged.
func produce(bootstrap, topic string, count, size int) float64 {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic))
	check(err)
	defer client.Close()
	value := make([]byte, size)
	check(client.ProduceSync(context.Background(), &kgo.Record{Value: value}).FirstErr())
	started := time.Now()
	for i := 0; i < count; i++ {
		client.Produce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			check(err)
		})
	}
	check(client.Flush(context.Background()))
	return time.Since(started).Seconds()
}

// Reads the topic from its start. Returns the number of records after the first poll, and the
// seconds until they are read.
func consume(bootstrap, topic string, count int) (int, float64) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	defer client.Close()
	poll := func() int {
		fetches := client.PollFetches(context.Background())
		check(fetches.Err())
		return fetches.NumRecords()
	}
	seen := poll()
	started, read := time.Now(), 0
	for seen+read < count {
		read += poll()
	}
	return read, time.Since(started).Seconds()
}

func main() {
	what, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	size, err := strconv.Atoi(os.Args[5])
	check(err)
	var seconds float64
	if what == "produce" {
		seconds = produce(bootstrap, topic, count, size)
	} else {
		count, seconds = consume(bootstrap, topic, count)
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"count": count, "seconds": seconds}))
}
