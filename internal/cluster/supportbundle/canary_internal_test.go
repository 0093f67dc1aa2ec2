// SPDX-License-Identifier: Apache-2.0

package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// body is the secret part of most canaries: a mix of letters and digits that occurs nowhere else.
const body = "Zq7CaNaRy4Kx9"

// canary is a secret as it occurs in a text, and the parts of it that must not be in a bundle.
type canary struct {
	kind, text string
	secrets    []string
}

// pem returns a private key of a kind in PEM.
func pem(kind string) string {
	var lines []string
	for range 4 {
		lines = append(lines, strings.Repeat(body+"Aa/+", 3)+"MIIEvQ")
	}
	return "-----BEGIN " + kind + "PRIVATE KEY-----\n" + strings.Join(lines, "\n") + "\n-----END " + kind + "PRIVATE KEY-----"
}

func jsonString(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// canaries returns secrets of each kind in the forms in which they occur.
func canaries() []canary {
	secret := []string{body}
	secretKey := "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "Zq7CaNaRy4"
	jwt := "eyJhbGciOiJSUzI1NiJ9.eyJzdWIi" + body + ".c2ln" + body
	key64 := base64.StdEncoding.EncodeToString([]byte(pem("RSA ")))
	list := []canary{
		{"PEM RSA", pem("RSA "), secret},
		{"PEM EC", pem("EC "), secret},
		{"PEM PKCS8", pem(""), secret},
		{"PEM OpenSSH", pem("OPENSSH "), secret},
		{"PEM encrypted", pem("ENCRYPTED "), secret},
		{"PEM in JSON", `{"key":` + jsonString(pem("")) + `}`, secret},
		{"PEM in JSON in JSON", jsonString(`{"key":` + jsonString(pem("")) + `}`), secret},
		{"PEM in a journal", strings.ReplaceAll(pem("EC "), "\n", "\nNov 22 05:00:01.000001 ip-10-0-0-1 prog[1]: "), secret},
		{"PEM without its end", strings.TrimSuffix(pem("EC "), "-----END EC PRIVATE KEY-----"), secret},
		{"age key", "AGE-SECRET-KEY-1QQQQZQ7CANARY4KX9QQQQQQQQQQ", []string{"CANARY4KX9"}},
		{"kubeconfig", "users:\n- name: admin\n  user:\n    client-key-data: " + key64 + "\n", []string{key64[40:80]}},
		{"kubeconfig in JSON", `{"user":{"client-key-data":"` + key64 + `"}}`, []string{key64[40:80]}},
		{"key in base64 without a name", "blob " + key64 + " end", []string{key64[40:80]}},
		{"JWT", "token is " + jwt, []string{jwt[20:40]}},
		{"service account token", `"serviceAccountToken":"` + jwt + `"`, []string{jwt[20:40]}},
		{"bearer", "Authorization: Bearer " + body + "abcdef", secret},
		{"bearer in JSON", `{"headers":{"Authorization":["Bearer ` + body + `abcdef"]}}`, secret},
		{"basic", "authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+body)), []string{base64.StdEncoding.EncodeToString([]byte("me:" + body))}},
		{"access key id", "using AKIAZQ7CANARY4KX9QQQ for it", []string{"CANARY4KX9"}},
		{"session key id", "ASIAZQ7CANARY4KX9QQQ", []string{"CANARY4KX9"}},
		{"secret access key alone", "key " + secretKey + "\n", []string{secretKey[:30], "Zq7CaNaRy4"}},
		{"AWS environment", "AWS_SECRET_ACCESS_KEY=" + secretKey + "\nAWS_SESSION_TOKEN=" + body + "+x/y==", []string{secretKey[:30], body}},
		{"AWS JSON", `{"AccessKeyId":"ASIAZQ7CANARY4KX9QQQ","SecretAccessKey":"` + secretKey + `","Token":"` + body + `=="}`, []string{"CANARY4KX9", secretKey[:30], body}},
		{"presigned URL", "GET https://b.s3.amazonaws.com/k?X-Amz-Credential=" + body + "%2F2026&X-Amz-Signature=" + body + "&X-Amz-Security-Token=" + body, secret},
		{"URL with a password", "postgres://app:" + body + "@db.example/app", secret},
		{"password in YAML", "db:\n  password: " + body + "\n", secret},
		{"quoted password with spaces", `password: "` + body + ` and more ` + body + `"`, secret},
		{"password in an environment", "DB_PASSWORD=" + body, secret},
		{"password as a flag", "prog --db-password " + body + " --x", secret},
		{"password as a flag with =", "prog --password=" + body, secret},
		{"token as a flag", "kubelet --bootstrap-token=" + body, secret},
		{"API key", "api_key: '" + body + "'", secret},
		{"client secret", `clientSecret="` + body + `"`, secret},
		{"escaped JSON", `msg="{\"password\":\"` + body + `\"}"`, secret},
		{"bootstrap token", "join --x abcdef.0123456789abcdef", []string{"0123456789abcdef"}},
		{"GitHub token", "ghp_" + body + body, secret},
		{"Slack token", "xoxb-123-" + body, secret},
		{"user data", `"UserData": "` + base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n"+body)) + `"`, []string{base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n" + body))}},
		{"cookie", "Set-Cookie: " + body, secret},
		{"passphrase", "SLIPWAY_STATE_PASSPHRASE=" + body, secret},
	}
	for i := range list {
		if list[i].secrets == nil {
			panic(list[i].kind)
		}
	}
	return list
}

// leaks returns the secrets of c that are in text.
func (c canary) leaks(text string) []string {
	var out []string
	for _, s := range c.secrets {
		if strings.Contains(text, s) {
			out = append(out, s)
		}
	}
	return out
}

func TestTextWithoutSecrets(t *testing.T) {
	r := NewRedactor()
	for _, c := range canaries() {
		for name, text := range map[string]string{
			"alone": c.text, "in a log": "before\n" + c.text + "\nafter", "in a line": "I0101 12:00:00 x.go:1] " + c.text + " ",
			"twice": c.text + "\n" + c.text,
		} {
			got, n := r.Text(text)
			if leaked := c.leaks(got); leaked != nil || n == 0 {
				t.Errorf("%s %s: %d replacements, left %q:\n%s", c.kind, name, n, leaked, got)
			}
			if again, _ := r.Text(got); again != got {
				t.Errorf("%s %s: redacted again:\n%s\nwas:\n%s", c.kind, name, again, got)
			}
		}
	}
}

// TestKeyCutAtItsBeginning: a console begins anywhere, also in a key.
func TestKeyCutAtItsBeginning(t *testing.T) {
	text := pem("RSA ")
	for at := 20; at < len(text)-40; at += 7 {
		got, _ := NewRedactor().Text(text[at:] + "\nlogin: ")
		if strings.Contains(got, body[:8]) || !strings.HasSuffix(got, "\nlogin: ") {
			t.Errorf("cut at %d: %s", at, got)
		}
	}
}

// TestHarmlessText: what helps to find a cause stays as it is.
func TestHarmlessText(t *testing.T) {
	for _, text := range []string{
		"tls-private-key-file=/run/slipway/pki/apiserver.key", "--service-account-signing-key-file=/etc/x.pem", "secretName: web-tls",
		"tokenExpirationSeconds: 3607", "automountServiceAccountToken: false", `"token": 12`, "authorization-mode=Node,RBAC",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "sha256:46707a53209f826ad0f0d62371ac69cd00e78fd9a8176cf5f6f87f18f7f8b718",
		"da39a3ee5e6b4b0d3255bfef95601890afd80709", "http://10.0.0.1:2379/health", "arn:aws:kms:us-east-1:123456789012:key/4f1a",
		"vol-0123456789abcdef0 at /dev/nvme1n1", "kubectl get secrets: forbidden", "ip-10-80-16-4.ec2.internal Ready",
	} {
		if got, n := NewRedactor().Text(text); got != text || n != 0 {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// canaryTree returns a value with each secret as a string, under its name, in an environment, and as a key.
func canaryTree() any {
	var texts, env []any
	for _, c := range canaries() {
		texts = append(texts, map[string]any{"message": c.text, "kind": c.kind})
	}
	for _, name := range []string{"DB_PASSWORD", "API_TOKEN", "AWS_SECRET_ACCESS_KEY", "clientSecret", "MY_CREDENTIALS"} {
		env = append(env, map[string]any{"name": name, "value": body}, map[string]any{name: body})
	}
	return map[string]any{
		"texts": texts, "env": env, "UserData": "IyEvYmluL3No" + body, "userData": map[string]any{"content": "password=" + body},
		"metadata":         map[string]any{"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": `{"x":"` + body + `"}`}},
		"password=" + body: "as a key",
	}
}

// TestNoCanaryInBundle replaces what each planned source reads by secrets of all kinds, and its error by others, and looks
// for them in the whole archive.
func TestNoCanaryInBundle(t *testing.T) {
	planned := everySource(t)
	if len(planned) < 30 {
		t.Fatalf("only %d sources are planned", len(planned))
	}
	all := canaries()
	var text strings.Builder
	for _, c := range all {
		text.WriteString(c.text + "\n\n")
	}
	var sources []Source
	for _, s := range planned {
		fill := func(suffix string, read func(context.Context) (any, error)) {
			sources = append(sources, Source{Path: strings.Replace(s.Path, ".", suffix+".", 1), Title: s.Title, Read: read})
		}
		fill("-text", func(context.Context) (any, error) { return text.String(), nil })
		fill("-bytes", func(context.Context) (any, error) { return []byte(text.String()), nil })
		fill("-tree", func(context.Context) (any, error) { return canaryTree(), nil })
		fill("-error", func(context.Context) (any, error) { return nil, errors.New(text.String()) })
	}
	files := Collect(t.Context(), sources, nil)
	packed, err := Archive(Header{Cluster: "demo", CreatedAt: time.Unix(1, 0), Tool: "test"}, files)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, content := range unpack(t, packed) {
		n++
		for _, c := range all {
			if leaked := c.leaks(content); leaked != nil {
				t.Errorf("%s has %q of %s", name, leaked, c.kind)
			}
		}
	}
	if want := 1 + 3*len(planned); n != want {
		t.Errorf("%d files in the archive, want %d", n, want)
	}
}

// unpack returns the files of an archive by name.
func unpack(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(content)
	}
}

// FuzzText: redaction is stable, keeps text without secrets, and removes a secret wherever it is.
func FuzzText(f *testing.F) {
	for _, c := range canaries() {
		f.Add(c.text, "")
		f.Add("x: y\n", c.text)
	}
	r := NewRedactor()
	f.Fuzz(func(t *testing.T, before, after string) {
		// A mutated seed may have the secret without what tells that it is one.
		before, after = strings.ReplaceAll(before, body, "body"), strings.ReplaceAll(after, body, "body")
		for _, secret := range []string{"\n" + pem("EC ") + "\n", "\npassword: " + body + "\n", "\nAuthorization: Bearer " + body + "\n"} {
			got, n := r.Text(before + secret + after)
			if n == 0 || strings.Contains(got, body+"Aa/+") || strings.Contains(got, ": "+body) {
				t.Errorf("%q stays in %q", secret, got)
			}
		}
	})
}
