// The official TypeScript SDK, unchanged, drives a fleet: only COMFY_BASE_URL says where. Prints what it saw as one line of JSON.
import { Comfy, NotFound, InvalidWorkflow, IdempotencyKeyReuse } from "@comfyorg/sdk";
import { readFile } from "node:fs/promises";

const [photoPath] = process.argv.slice(2);
const comfy = new Comfy();

const invert = (image: unknown) =>
  comfy.workflows.fromJson({
    "1": { class_type: "LoadImage", inputs: { image } },
    "2": { class_type: "ImageInvert", inputs: { image: ["1", 0] } },
    "3": { class_type: "SaveImage", inputs: { images: ["2", 0], filename_prefix: "inverted" } },
  });

const refusal = async (call: Promise<unknown>): Promise<string> => {
  try {
    await call;
  } catch (error) {
    for (const kind of [NotFound, InvalidWorkflow, IdempotencyKeyReuse]) {
      if (error instanceof kind) return kind.name;
    }
    throw error;
  }
  return "none";
};

const photo = comfy.assets.fromBytes(await readFile(photoPath), { filename: "photo.png", contentType: "image/png" });
const job = await comfy.submit(invert(photo));
const kinds: string[] = [];
for await (const event of job.events()) kinds.push(event.kind);
await job.refresh();
const [made] = job.getOutputs("3");
const bytes = await made.toBytes();

const again = await comfy.run(invert({ __type: "core/ASSET", info: { id: made.id } }));
const [back] = again.getOutputs("3");

const key = crypto.randomUUID();
await comfy.submit(invert(photo), { idempotencyKey: key });
console.log(
  JSON.stringify({
    status: job.status,
    first: kinds[0],
    last: kinds.at(-1),
    outputEvents: kinds.filter((kind) => kind === "outputReady").length,
    sizeIsTrue: bytes.length === made.sizeBytes,
    again: again.status,
    backIsPng: Buffer.from(await back.toBytes()).subarray(1, 4).toString() === "PNG",
    format: (await job.getWorkflow()).format,
    unknown: await refusal(comfy.jobs.get(crypto.randomUUID())),
    invalid: await refusal(comfy.run(comfy.workflows.fromJson({ "1": { class_type: "NoSuchNode", inputs: {} } }))),
    reused: await refusal(comfy.submit(invert(photo), { idempotencyKey: key })),
  }),
);
