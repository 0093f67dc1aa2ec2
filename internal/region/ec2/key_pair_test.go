// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
)

// Keys of ssh-keygen, and one of them in the form of RFC 4716 ("ssh-keygen -e") and as DER ("-e -m PKCS8").
const (
	rsaKey = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCqIYhEeCdI7W5aLoDQAtXo1tN2aqnL5/9CG5C8+cVIZmuPkWB5fq+BlTs+l1olQ4vU30+ReRjgLq3ROG9TMox6KDTR" +
		"7kx4VVe4+t4XMLzV0GgQK54AyDO+WkYW4cY3EPRqJ02HcZrxJYYmoXAGzKASp9ojUtB2MqyChvEiUubgmF+rKcS2npAh6gcmtw87Aep/yKxs1zIpEaJNS8MN1IQVKnk2Cs4n" +
		"gMKP7F9KMk/t93JXnRE4Z4NXMgKFgLJUfD7JGaLfimx+oWtqUGzE/ssA4fw2dbQUm5nH1LyfWv177/uln39Uw8ep7qJK/FWJIHJzgT25TPve/tGoLDZ/QFed"
	rsaKeyDER = `MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAqiGIRHgnSO1uWi6A0ALV
6NbTdmqpy+f/QhuQvPnFSGZrj5FgeX6vgZU7PpdaJUOL1N9PkXkY4C6t0ThvUzKM
eig00e5MeFVXuPreFzC81dBoECueAMgzvlpGFuHGNxD0aidNh3Ga8SWGJqFwBsyg
EqfaI1LQdjKsgobxIlLm4JhfqynEtp6QIeoHJrcPOwHqf8isbNcyKRGiTUvDDdSE
FSp5NgrOJ4DCj+xfSjJP7fdyV50ROGeDVzIChYCyVHw+yRmi34psfqFralBsxP7L
AOH8NnW0FJuZx9S8n1r9e+/7pZ9/VMPHqe6iSvxViSByc4E9uUz73v7RqCw2f0BX
nQIDAQAB
`
	rsaKeyRFC4716 = `---- BEGIN SSH2 PUBLIC KEY ----
Comment: "2048-bit RSA, converted \
by root from OpenSSH"
AAAAB3NzaC1yc2EAAAADAQABAAABAQCqIYhEeCdI7W5aLoDQAtXo1tN2aqnL5/9CG5C8+c
VIZmuPkWB5fq+BlTs+l1olQ4vU30+ReRjgLq3ROG9TMox6KDTR7kx4VVe4+t4XMLzV0GgQ
K54AyDO+WkYW4cY3EPRqJ02HcZrxJYYmoXAGzKASp9ojUtB2MqyChvEiUubgmF+rKcS2np
Ah6gcmtw87Aep/yKxs1zIpEaJNS8MN1IQVKnk2Cs4ngMKP7F9KMk/t93JXnRE4Z4NXMgKF
gLJUfD7JGaLfimx+oWtqUGzE/ssA4fw2dbQUm5nH1LyfWv177/uln39Uw8ep7qJK/FWJIH
JzgT25TPve/tGoLDZ/QFed
---- END SSH2 PUBLIC KEY ----
`
	// rsaFingerprint is what "ssh-keygen -ef KEY -m PEM | openssl rsa -RSAPublicKey_in -outform DER | openssl md5 -c" prints.
	rsaFingerprint     = "2a:26:6d:b2:55:56:9d:98:fa:83:72:59:b0:30:4a:c1"
	ed25519Key         = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKSXE3LTxJr6oGtq0wtclXRci+Q0MSfMRACivmyfyWGZ"
	ed25519Fingerprint = "vny8ZcPQf6VPVH1t1pOwTvGETwugg/Pu3axnCgh4FWo="
	ecdsaKey           = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBPKVxF4dEXsWKwvrM7tO72MeVEYig+3pDSfGh6MD/Cx" +
		"Gw5zBM1u0gS4wWh+aVTQDGLymHciOTdDilFqKdESxwnc="
)

// TestForeignKeysAreRefused: EC2 takes RSA and ED25519 keys only, and reads them.
func TestForeignKeysAreRefused(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	for name, key := range map[string]string{
		"two words":              "x aGVsbG8=",
		"another type":           "ssh-rsa " + strings.Fields(ed25519Key)[1],
		"a part of a key":        ed25519Key[:60],
		"ECDSA":                  ecdsaKey,
		"a text":                 "hello",
		"an unfinished RFC 4716": strings.TrimSuffix(rsaKeyRFC4716, "---- END SSH2 PUBLIC KEY ----\n"),
	} {
		_, err := r.ImportKeyPair(t.Context(), &client.ImportKeyPairInput{KeyName: &name, PublicKeyMaterial: []byte(key)})
		if code(err) != "InvalidKey.Format" {
			t.Errorf("%s: %v, want InvalidKey.Format", name, err)
		}
	}
}

// TestImportedKeys: a key may have three forms, and its fingerprint is that of AWS.
func TestImportedKeys(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	for name, x := range map[string]struct{ material, key, kind, fingerprint string }{
		"rsa":     {rsaKey + " someone@home\n", rsaKey, "rsa", rsaFingerprint},
		"rfc4716": {rsaKeyRFC4716, rsaKey, "rsa", rsaFingerprint},
		"der":     {rsaKeyDER, rsaKey, "rsa", rsaFingerprint},
		"ed25519": {ed25519Key, ed25519Key, "ed25519", ed25519Fingerprint},
	} {
		made, err := r.ImportKeyPair(t.Context(), &client.ImportKeyPairInput{KeyName: &name, PublicKeyMaterial: []byte(x.material)})
		if err != nil || aws.ToString(made.KeyFingerprint) != x.fingerprint {
			t.Errorf("%s: %+v, %v, want the fingerprint %s", name, made, err, x.fingerprint)
			continue
		}

		out := must[*client.DescribeKeyPairsOutput](t)(r.DescribeKeyPairs(t.Context(), &client.DescribeKeyPairsInput{
			KeyNames: []string{name}, IncludePublicKey: aws.Bool(true),
		}))
		got := out.KeyPairs[0]
		if aws.ToString(got.PublicKey) != x.key+" "+name || string(got.KeyType) != x.kind || aws.ToString(got.KeyFingerprint) != x.fingerprint {
			t.Errorf("%s is described as %+v", name, got)
		}
	}
}
