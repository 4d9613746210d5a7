// Answers a question of dp_pipelines on a person's own device, under local differential privacy.
//
// In: the document of a question (Question.to_json() in Python) and one person's value. Out: a report of a few whole numbers, the
// same as the Python client would give for the same coins. Holds: every chance is a whole multiple of 2^-52, read from the
// document; coins come from the platform's cryptographic generator. Not covered: who was asked and when, which address sent it.
'use strict';

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

const dAry = (index, size, other, coin) => (coin < size * other ? whole(coin, other) : index);

const MECHANISMS = {
  d_ary: (index, size, p, draw, bits) => [dAry(index, size, p.other, draw(bits))],
  unary: (index, size, p, draw, bits) => {
    const words = new Array(Math.ceil(size / 32)).fill(0);
    for (let v = 0; v < size; v += 1) {
      if (draw(bits) < (v === index ? 2 ** (bits - 1) : p.one)) words[v >> 5] += 2 ** (v & 31);
    }
    return words;
  },
  local_hashing: (index, size, p, draw, bits) => {
    const a = draw(p.hash_bits);
    const b = draw(p.hash_bits);
    const bucket = ((Math.imul(a, index) + b) >>> 0) >>> (32 - p.bucket_bits);
    return [a, b, dAry(bucket, 2 ** p.bucket_bits, p.other, draw(bits))];
  },
  hadamard: (index, size, p, draw, bits) => {
    const coin = draw(bits);
    const shared = p.codes * p.any_code;
    if (coin < shared) return [whole(coin, p.any_code)];
    const rows = p.block_size - 1;
    return [whole(index, rows) * p.block_size + nthOfRow(whole(coin - shared, p.own_code), (index % rows) + 1)];
  },
  one_bit: (index, size, p, draw, bits) => [draw(bits) < p.lowest + index * p.step ? 1 : 0],
  piecewise: (index, size, p, draw, bits) => {
    const coin = draw(bits);
    const shared = p.points * p.any_point;
    return [coin < shared ? whole(coin, p.any_point) : p.shift * index + whole(coin - shared, p.near_point)];
  },
};

// The place of a value: in the list of values, among the bins, or on the grid of numbers (the nearest point; beyond the ends, the end).
function indexOf(question, value) {
  if (question.values) {
    const place = question.values.indexOf(value);
    const found = place >= 0 ? place : question.values.indexOf(question.otherwise);
    if (found < 0) throw new Error('value: is not one of the question\'s values');
    return found;
  }
  const number = typeof value === 'number' && !Number.isNaN(value) ? value : Number(question.otherwise ?? NaN);
  if (Number.isNaN(number)) throw new Error('value: is not a number');
  if (question.edges) {
    const above = question.edges.findIndex((edge) => Number(edge) > number);
    return Math.max(0, (above < 0 ? question.edges.length - 1 : Math.min(above, question.edges.length - 1)) - 1);
  }
  const [low, high] = [Number(question.low), Number(question.high)];
  const nearest = Math.floor(((number - low) / (high - low)) * question.steps + 0.5);
  return Math.min(question.steps, Math.max(0, nearest));
}

// A fresh answer. `draw` is for tests alone, which compare both clients coin by coin.
function report(question, value, draw = systemCoin) {
  const size = question.values?.length ?? (question.edges ? question.edges.length - 1 : question.steps + 1);
  const respond = MECHANISMS[question.mechanism];
  if (question.format !== 'dp_pipelines.question/1' || question.bits > 52 || (question.parameters.hash_bits ?? 32) !== 32 || !respond) {
    throw new Error('question: is not a document that this client understands');
  }
  return { question: question.name, report: respond(indexOf(question, value), size, question.parameters, draw, question.bits) };
}

module.exports = { report };
