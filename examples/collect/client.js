// Answers a question of dp_pipelines on a person's own device, under local differential privacy.
//
// In: the document of a question (Question.to_json() in Python) and one person's value. Out: a report of a few whole numbers, the
// same as the Python client would give for the same coins. Holds: every chance is a whole multiple of 2^-52 and is computed here
// from epsilon; a document whose numbers do not follow from its epsilon is refused; coins come from the platform's cryptographic
// generator. Not covered: who was asked and when, which address sent it.
'use strict';

const FORMAT = 'dp_pipelines.question/1';
const BITS = 52;
const COINS = 2n ** BigInt(BITS);
const MOST_EPSILON = '12';
const MOST_VALUES = 1000000;
const MOST_STEPS = 1024;

// A uniform whole number from 0 to 2^bits - 1, of at most 52 bits: numbers of JavaScript are exact up to 2^53.
function systemCoin(bits) {
  const words = new Uint32Array(2);
  globalThis.crypto.getRandomValues(words);
  return Math.floor(((words[0] & 0xfffff) * 2 ** 32 + words[1]) / 2 ** (52 - bits));
}

const whole = (a, b) => (a - (a % b)) / b;

function ones(x) {
  let n = 0;
  for (; x > 0; x &= x - 1) n += 1;
  return n;
}

// The nth column in which a row of the Hadamard matrix is +1.
function nthOfRow(n, row) {
  const low = row & -row;
  const column = (n - (n % low)) * 2 + (n % low);
  return ones(column & row) % 2 ? column + low : column;
}

function refuse(field, message) {
  throw new Error(`${field}: ${message}`);
}

// Exact fractions of BigInt: a value is top / bottom, and bottom is positive.

// A decimal number as Python writes it, in at most 20 digits.
function decimal(text, field) {
  const match = typeof text === 'string' ? /^(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?$/.exec(text) : null;
  const [sign, integer, places] = match ? [match[1], match[2], match[3] ?? ''] : ['', '', ''];
  const digits = (integer + places).replace(/^0+(?=.)/, '');
  // The power of ten of the first digit.
  const magnitude = digits.length - 1 - places.length;
  if (!match || digits.length > 20 || Math.abs(magnitude) > 20) refuse(field, 'must be a number of at most 20 digits');
  return { top: BigInt(sign + digits), bottom: 10n ** BigInt(places.length) };
}

const below = (a, b) => a.top * b.bottom < b.top * a.bottom;

// A finite number of JavaScript. To double it is exact.
function exact(number) {
  let bottom = 1n;
  for (; !Number.isInteger(number); number *= 2) bottom *= 2n;
  return { top: BigInt(number), bottom };
}

const ceiling = (top, bottom) => (top + bottom - 1n) / bottom;
const largest = (a, b) => (a > b ? a : b);

// Python's lower bound of e^x: e^x rounded to 50 digits, less one unit of the last digit.
function expBelow(x) {
  const scale = 10n ** 120n;
  let sum = 0n;
  for (let term = scale, n = 1n; term > 0n; n += 1n) {
    sum += term;
    term = (term * x.top) / (x.bottom * n);
  }
  const unit = 10n ** BigInt(String(sum).length - 50);
  return { top: ((sum + unit / 2n) / unit - 1n) * unit, bottom: scale };
}

// The least number of outcomes of a coin that is at least the share of one in top / bottom.
const weightFor = (top, bottom) => ceiling(COINS * bottom, top);

// The number for which (e^epsilon + add)^2 / per is least, the first of equal ones.
function leastVariance(candidates, exp, addAndPer) {
  const [best] = candidates
    .map((candidate) => {
      const [add, per] = addAndPer(candidate);
      return { candidate, top: (exp.top + add * exp.bottom) ** 2n, bottom: per };
    })
    .reduce(([best], next) => [below(next, best) ? next : best], [{ top: 1n, bottom: 0n }]);
  return best.candidate;
}

const powersOfTwo = (from, to) => Array.from({ length: to - from }, (_, place) => 2n ** BigInt(from + place));
const otherOf = (exp, size) => weightFor(exp.top + (size - 1n) * exp.bottom, exp.bottom);

// What follows from epsilon and the number of values, as in Python's `parameters()`. `left`: coins by which a report tells about
// its value; a report without them tells nothing.
const PARAMETERS = {
  d_ary: (exp, size) => {
    const other = otherOf(exp, size);
    return { left: COINS - size * other, fields: ['value'], parameters: { other } };
  },
  unary: (exp, size) => {
    const one = weightFor(exp.top + exp.bottom, exp.bottom);
    const fields = Array.from({ length: Number(ceiling(size, 32n)) }, (_, word) => `ones_${word}`);
    return { left: COINS / 2n - one, fields, parameters: { one } };
  },
  local_hashing: (exp, size) => {
    const buckets = leastVariance(powersOfTwo(1, 20), exp, (n) => [n - 1n, n - 1n]);
    const bucketBits = BigInt(buckets.toString(2).length - 1);
    const valueBits = (size - 1n).toString(2).length;
    if (valueBits + Number(bucketBits) - 1 > 32) refuse('values', 'are too many for this hash');
    const other = otherOf(exp, buckets);
    return {
      left: COINS - buckets * other,
      fields: ['a', 'b', 'bucket'],
      parameters: { hash_bits: 32n, bucket_bits: bucketBits, other },
    };
  },
  hadamard: (exp, size) => {
    const candidates = powersOfTwo(0, 18).filter((n) => n <= size);
    const blocks = leastVariance(candidates, exp, (n) => [2n * n - 1n, n]);
    const blockSize = 2n ** BigInt(ceiling(size, blocks).toString(2).length);
    const [codes, half] = [blocks * blockSize, blockSize / 2n];
    const anyCode = weightFor(half * exp.top + (codes - half) * exp.bottom, exp.bottom);
    const left = COINS - codes * anyCode;
    return { left, fields: ['code'], parameters: { block_size: blockSize, codes, any_code: anyCode, own_code: left / half } };
  },
  one_bit: (exp, size) => {
    const even = largest(1n, (size - 1n) / 2n);
    const lowest = ceiling(weightFor(exp.top + exp.bottom, exp.bottom), even) * even;
    const left = COINS - 2n * lowest;
    return { left, fields: ['bit'], parameters: { lowest, step: left / (size - 1n) } };
  },
  piecewise: (exp, size, epsilon) => {
    const half = expBelow({ top: epsilon.top, bottom: 2n * epsilon.bottom });
    const shift = largest(1n, (128n * half.top + half.bottom) / (2n * half.bottom));
    const window = 64n * (size - 1n);
    const points = window + shift * (size - 1n);
    const needed = weightFor(window * exp.top + (points - window) * exp.bottom, exp.bottom);
    const anyPoint = ceiling(needed, window) * window;
    const left = COINS - points * anyPoint;
    return { left, fields: ['point'], parameters: { points, shift, any_point: anyPoint, near_point: left / window } };
  },
};

const FOR_NUMBERS = ['one_bit', 'piecewise'];

const RESPONSES = {
  d_ary: (index, size, p, draw) => [dAry(index, size, p.other, draw(BITS))],
  unary: (index, size, p, draw) => {
    const words = new Array(Math.ceil(size / 32)).fill(0);
    for (let v = 0; v < size; v += 1) {
      if (draw(BITS) < (v === index ? 2 ** (BITS - 1) : p.one)) words[v >> 5] += 2 ** (v & 31);
    }
    return words;
  },
  local_hashing: (index, size, p, draw) => {
    const a = draw(p.hash_bits);
    const b = draw(p.hash_bits);
    const bucket = ((Math.imul(a, index) + b) >>> 0) >>> (32 - p.bucket_bits);
    return [a, b, dAry(bucket, 2 ** p.bucket_bits, p.other, draw(BITS))];
  },
  hadamard: (index, size, p, draw) => {
    const coin = draw(BITS);
    const shared = p.codes * p.any_code;
    if (coin < shared) return [whole(coin, p.any_code)];
    const rows = p.block_size - 1;
    return [whole(index, rows) * p.block_size + nthOfRow(whole(coin - shared, p.own_code), (index % rows) + 1)];
  },
  one_bit: (index, size, p, draw) => [draw(BITS) < p.lowest + index * p.step ? 1 : 0],
  piecewise: (index, size, p, draw) => {
    const coin = draw(BITS);
    const shared = p.points * p.any_point;
    return [coin < shared ? whole(coin, p.any_point) : p.shift * index + whole(coin - shared, p.near_point)];
  },
};

const dAry = (index, size, other, coin) => (coin < size * other ? whole(coin, other) : index);

// Names of questions are names of stages, after which the server names files.
function checkName(name) {
  if (typeof name !== 'string' || !name || [...name].length > 100) refuse('name', 'must be a name of at most 100 characters');
  if (/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(name)) refuse('name', 'must not contain control characters');
  if (/^(__|\.)|[/\\]/u.test(name)) refuse('name', 'must not start with a dot or two underscores, or contain a slash');
  if (/^((manifest|manifest\.json|report|report\.html)|(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?)$/isu.test(name)) {
    refuse('name', 'is the name of a device or of a file of every release');
  }
}

// Each domain has `size`, `keys` (the fields of the document that describe it) and `index`, which never leaves 0 to size - 1.

function choices({ values, otherwise }) {
  if (!Array.isArray(values) || values.length < 2 || values.length > MOST_VALUES) {
    refuse('values', 'must be a list of 2 to 1,000,000 values');
  }
  const wrong = values.findIndex((value) => (typeof value === 'string' ? /\p{Cs}/u.test(value) : !Number.isSafeInteger(value)));
  if (wrong >= 0) refuse(`values[${wrong}]`, 'must be a text, or a whole number that JavaScript holds exactly');
  if (new Set(values).size < values.length) refuse('values', 'names a value twice');
  if (otherwise !== undefined && !values.includes(otherwise)) refuse('otherwise', 'must be one of the values');
  const index = (value) => {
    const place = values.indexOf(value);
    const otherPlace = place >= 0 ? place : values.indexOf(otherwise);
    if (otherPlace < 0) refuse('value', 'is not one of the question\'s values');
    return otherPlace;
  };
  return { size: values.length, keys: ['values'], index };
}

// A person's number, or the one that the question declares for none; infinities are those of JavaScript.
function numberOf(value, otherwise) {
  if (typeof value === 'number' && !Number.isNaN(value)) return Number.isFinite(value) ? exact(value) : value;
  if (otherwise === undefined) refuse('value', 'is not a number');
  return otherwise;
}

function numberBins({ edges, otherwise }) {
  const message = 'must be a list of at least 3 numbers that grow';
  if (!Array.isArray(edges) || edges.length < 3 || edges.length > MOST_VALUES) refuse('edges', message);
  const limits = edges.map((edge, place) => decimal(edge, `edges[${place}]`));
  if (!limits.every((limit, place) => place === 0 || below(limits[place - 1], limit))) refuse('edges', message);
  const instead = otherwise === undefined ? undefined : decimal(otherwise, 'otherwise');
  const last = limits.length - 2;
  const index = (value) => {
    const number = numberOf(value, instead);
    if (typeof number === 'number') return number > 0 ? last : 0;
    const above = limits.findIndex((limit) => below(number, limit));
    return Math.max(0, above < 0 ? last : Math.min(above - 1, last));
  };
  return { size: last + 1, keys: ['edges'], index };
}

// Beyond the ends a number is the end; halves between two points go up.
function numberGrid({ low, high, steps, otherwise }) {
  const [from, to] = [decimal(low, 'low'), decimal(high, 'high')];
  if (!below(from, to)) refuse('high', 'must be above low');
  if (!Number.isInteger(steps) || steps < 2 || steps > MOST_STEPS || steps & (steps - 1)) {
    refuse('steps', `must be a power of two, at most ${MOST_STEPS}`);
  }
  const instead = otherwise === undefined ? undefined : decimal(otherwise, 'otherwise');
  if (instead && (below(instead, from) || below(to, instead))) refuse('otherwise', 'must lie between low and high');
  const minus = (a, b) => ({ top: a.top * b.bottom - b.top * a.bottom, bottom: a.bottom * b.bottom });
  const index = (value) => {
    const number = numberOf(value, instead);
    if (typeof number === 'number') return number > 0 ? steps : 0;
    if (below(number, from)) return 0;
    if (below(to, number)) return steps;
    const [part, width] = [minus(number, from), minus(to, from)];
    return Number((2n * part.top * width.bottom * BigInt(steps) + part.bottom * width.top) / (2n * part.bottom * width.top));
  };
  return { size: steps + 1, keys: ['low', 'high', 'steps'], index };
}

function same(a, b) {
  if (a === b || typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b;
  const keys = Object.keys(a);
  return (
    Array.isArray(a) === Array.isArray(b) &&
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && same(a[key], b[key]))
  );
}

// A question whose numbers are computed from its name, values, epsilon and mechanism. The document must have the same, and nothing
// more.
function open(document) {
  if (typeof document !== 'object' || document === null || document.format !== FORMAT) refuse('format', `must be ${FORMAT}`);
  const missing = ['name', 'epsilon', 'mechanism'].find((key) => document[key] === undefined);
  if (missing) refuse(missing, 'is missing');
  const { name, epsilon: written, mechanism } = document;
  const domain = (document.values !== undefined ? choices : document.edges !== undefined ? numberBins : numberGrid)(document);
  checkName(name);
  const epsilon = /^(0|[1-9][0-9]?)(\.[0-9]*[1-9])?$/.test(written) ? decimal(written, 'epsilon') : { top: 0n, bottom: 1n };
  if (typeof written !== 'string' || epsilon.top <= 0n || below(decimal(MOST_EPSILON), epsilon)) {
    refuse('epsilon', `must be a number above 0, at most ${MOST_EPSILON}, of at most 20 digits`);
  }
  const known = typeof mechanism === 'string' && Object.hasOwn(PARAMETERS, mechanism);
  if (!known || FOR_NUMBERS.includes(mechanism) !== domain.keys.includes('steps')) {
    refuse('mechanism', 'is not one for these values');
  }
  const { left, fields, parameters } = PARAMETERS[mechanism](expBelow(epsilon), BigInt(domain.size), epsilon);
  if (left <= 0n) refuse('epsilon', `is too small for ${domain.size} values`);
  const numbers = Object.fromEntries(Object.entries(parameters).map(([key, value]) => [key, Number(value)]));
  const right = { format: FORMAT, name, epsilon: written, mechanism, bits: BITS, fields, parameters: numbers };
  for (const key of domain.keys) right[key] = document[key];
  if (document.otherwise !== undefined) right.otherwise = document.otherwise;
  const keys = [...new Set([...Object.keys(right), ...Object.keys(document)])].sort();
  const both = (key) => Object.hasOwn(right, key) && Object.hasOwn(document, key);
  const wrong = keys.find((key) => !both(key) || !same(right[key], document[key]));
  if (wrong !== undefined) refuse(wrong, 'is not what follows from the question\'s values, epsilon and mechanism');
  return { name, size: domain.size, index: domain.index, parameters: numbers, respond: RESPONSES[mechanism] };
}

// A fresh answer. `draw` is for tests alone, which compare both clients coin by coin.
function report(document, value, draw = systemCoin) {
  const question = open(document);
  return { question: question.name, report: question.respond(question.index(value), question.size, question.parameters, draw) };
}

module.exports = { report };
