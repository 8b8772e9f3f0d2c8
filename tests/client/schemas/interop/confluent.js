// Writes and reads records with Confluent's JavaScript serializers.
// Input: JSON of {url, files, cases: [{format, topic, value} or {format, topic, data, headers}]}.
// Output: JSON with {data, headers} or {value} for each case.  Bytes are base64.
const sr = require('@confluentinc/schemaregistry');
const { fromBinary, create, fromJson, toJson, createFileRegistry } = require('@bufbuild/protobuf');
const { FileDescriptorSetSchema } = require('@bufbuild/protobuf/wkt');

const VALUE = sr.SerdeType.VALUE;

function serializer(client, registry, format, isInHeader) {
  const conf = { autoRegisterSchemas: false, useLatestVersion: true };
  if (isInHeader) conf.schemaIdSerializer = sr.HeaderSchemaIdSerializer;
  if (format === 'avro') return new sr.AvroSerializer(client, VALUE, conf);
  if (format === 'json') return new sr.JsonSerializer(client, VALUE, { ...conf, validate: true });
  const made = new sr.ProtobufSerializer(client, VALUE, { ...conf, autoRegisterSchemas: true, useLatestVersion: false });
  made.registry.add(registry.getMessage('shop.Order'));
  return made;
}

function deserializer(client, format) {
  if (format === 'avro') return new sr.AvroDeserializer(client, VALUE, {});
  if (format === 'json') return new sr.JsonDeserializer(client, VALUE, { validate: true });
  return new sr.ProtobufDeserializer(client, VALUE, {});
}

async function run(one, client, registry) {
  const order = registry.getMessage('shop.Order');
  if (one.data === undefined) {
    const value = one.format === 'protobuf' ? fromJson(order, one.value, { registry }) : one.value;
    const headers = {};
    const data = await serializer(client, registry, one.format, one.isInHeader).serialize(one.topic, value, headers);
    const found = Object.entries(headers).map(([name, content]) => [name, Buffer.from(content).toString('base64')]);
    return { data: Buffer.from(data).toString('base64'), headers: Object.fromEntries(found) };
  }
  const headers = {};
  for (const [name, content] of Object.entries(one.headers)) headers[name] = Buffer.from(content, 'base64');
  const value = await deserializer(client, one.format).deserialize(one.topic, Buffer.from(one.data, 'base64'), headers);
  return { value: one.format === 'protobuf' ? toJson(order, value, { registry }) : value };
}

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const input = JSON.parse(Buffer.concat(chunks).toString());
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, Buffer.from(input.files, 'base64')));
  const results = [];
  for (const one of input.cases) {
    const client = sr.SchemaRegistryClient.newClient({ baseURLs: [input.url], cacheCapacity: 100 });
    try {
      results.push(await run(one, client, registry));
    } catch (error) {
      results.push({ error: String(error.stack || error) });
    }
  }
  process.stdout.write(JSON.stringify(results));
}

main();
