<?php
// A portrait with PHP's curl: a face photo and a prompt in, the picture out.
//   php portrait.php photo.jpg "a studio portrait" result.png
// GENFLOW_URL says where genflow is, GENFLOW_API_KEY who asks (where keys are set).

declare(strict_types=1);

[, $photo, $prompt, $result] = $argv;
$base = getenv('GENFLOW_URL') ?: 'http://127.0.0.1:8190';
$key = getenv('GENFLOW_API_KEY');

function call(string $method, string $path, array $headers = [], array|string|null $body = null): string
{
    global $base, $key;
    $curl = curl_init($base . $path);
    curl_setopt_array($curl, [
        CURLOPT_CUSTOMREQUEST => $method,
        CURLOPT_HTTPHEADER => $key ? ["Authorization: Bearer $key", ...$headers] : $headers,
        CURLOPT_FOLLOWLOCATION => true, // pictures may lie in an object store
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_TIMEOUT => 90,
    ]);
    if ($body !== null) {
        curl_setopt($curl, CURLOPT_POSTFIELDS, $body);
    }
    $answer = curl_exec($curl);
    if ($answer === false) {
        throw new RuntimeException(curl_error($curl));
    }
    $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
    if ($status >= 400) {
        $error = json_decode($answer, true)['error'];
        throw new RuntimeException("$status {$error['code']}: {$error['message']}");
    }
    return $answer;
}

// The key makes it safe to send the request again after a lost answer.
$headers = ['Idempotency-Key: ' . bin2hex(random_bytes(16)), 'Prefer: wait=60'];
$form = ['prompt' => $prompt, 'photo' => new CURLFile($photo, 'image/jpeg', 'photo.jpg')];
$job = json_decode(call('POST', '/genflow/v1/portraits', $headers, $form), true);
while (in_array($job['status'], ['queued', 'running', 'canceling'], true)) {
    sleep(1);
    $job = json_decode(call('GET', "/api/v2/jobs/{$job['id']}"), true);
}
if ($job['status'] !== 'succeeded') {
    throw new RuntimeException("{$job['status']}: " . ($job['error']['message'] ?? ''));
}
file_put_contents($result, call('GET', "/api/v2/assets/{$job['outputs'][0]['id']}/content"));
echo "{$job['id']} {$job['status']} $result\n";
