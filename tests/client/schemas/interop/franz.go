// Writes and reads records with franz-go's sr package, hamba/avro and Go's protobuf.
// Input and output are those of confluent.js.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

type record struct {
	Format string          `json:"format,omitempty"`
	Topic  string          `json:"topic,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
	Data   []byte          `json:"data,omitempty"`
	Error  string          `json:"error,omitempty"`
}

type input struct {
	URL   string   `json:"url"`
	Files []byte   `json:"files"`
	Cases []record `json:"cases"`
}

type price struct {
	Cents    int64  `avro:"cents" json:"cents"`
	Currency string `avro:"currency" json:"currency"`
}

type order struct {
	ID       string         `avro:"id" json:"id"`
	Price    price          `avro:"price" json:"price"`
	Discount *price         `avro:"discount" json:"discount"`
	Tags     []string       `avro:"tags" json:"tags"`
	Counts   map[string]any `avro:"counts" json:"counts"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Returns the Avro schema with the schemas that it imports.
func parsed(client *sr.Client, schema sr.Schema) avro.Schema {
	for _, one := range schema.References {
		found, err := client.SchemaByVersion(context.Background(), one.Subject, one.Version)
		check(err)
		parsed(client, found.Schema)
	}
	found, err := avro.Parse(schema.Schema)
	check(err)
	return found
}

func run(one record, client *sr.Client, message protoreflect.MessageDescriptor) (result record) {
	defer func() {
		if failure := recover(); failure != nil {
			result = record{Error: fmt.Sprint(failure)}
		}
	}()
	var serde sr.Serde
	if one.Data == nil {
		latest, err := client.SchemaByVersion(context.Background(), one.Topic+"-value", -1)
		check(err)
		switch one.Format {
		case "avro":
			schema := parsed(client, latest.Schema)
			var value order
			check(json.Unmarshal(one.Value, &value))
			serde.Register(latest.ID, order{}, sr.EncodeFn(func(v any) ([]byte, error) { return avro.Marshal(schema, v) }))
			result.Data, err = serde.Encode(value)
		case "json":
			var value order
			check(json.Unmarshal(one.Value, &value))
			serde.Register(latest.ID, order{}, sr.EncodeFn(json.Marshal))
			result.Data, err = serde.Encode(value)
		default:
			value := dynamicpb.NewMessage(message)
			check(protojson.Unmarshal(one.Value, value))
			index := []int{message.Index()}
			serde.Register(latest.ID, &dynamicpb.Message{}, sr.Index(index...),
				sr.EncodeFn(func(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }))
			result.Data, err = serde.Encode(value)
		}
		check(err)
		return result
	}
	id, body, err := serde.DecodeID(one.Data)
	check(err)
	schema, err := client.SchemaByID(context.Background(), id)
	check(err)
	switch one.Format {
	case "avro":
		var value order
		check(avro.Unmarshal(parsed(client, schema), body, &value))
		result.Value, err = json.Marshal(value)
	case "json":
		var value order
		check(json.Unmarshal(body, &value))
		result.Value, err = json.Marshal(value)
	default:
		index, rest, failure := serde.DecodeIndex(body, 8)
		check(failure)
		if len(index) != 1 || index[0] != message.Index() {
			panic(fmt.Sprint("unexpected message indexes ", index))
		}
		value := dynamicpb.NewMessage(message)
		check(proto.Unmarshal(rest, value))
		result.Value, err = protojson.Marshal(value)
	}
	check(err)
	return result
}

func main() {
	var given input
	check(json.NewDecoder(os.Stdin).Decode(&given))
	var set descriptorpb.FileDescriptorSet
	check(proto.Unmarshal(given.Files, &set))
	files, err := protodesc.NewFiles(&set)
	check(err)
	found, err := files.FindDescriptorByName("shop.Order")
	check(err)
	client, err := sr.NewClient(sr.URLs(given.URL))
	check(err)
	results := []record{}
	for _, one := range given.Cases {
		results = append(results, run(one, client, found.(protoreflect.MessageDescriptor)))
	}
	check(json.NewEncoder(os.Stdout).Encode(results))
}
