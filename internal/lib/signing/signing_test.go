// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-k8s/slipway/internal/lib/signing"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func payload(digest, kind string) []byte {
	return []byte(`{"critical":{"identity":{"docker-reference":"registry.example.com/a"},"image":{"docker-manifest-digest":"` +
		digest + `"},"type":"` + kind + `"},"optional":null}`)
}

func publicPEM(t *testing.T, key crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}

	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign signs as cosign does: Ed25519 keys sign the text itself, the others its SHA-256.
func sign(t *testing.T, key crypto.Signer, text []byte) string {
	t.Helper()
	sum := sha256.Sum256(text)
	message := sum[:]
	options := crypto.SignerOpts(crypto.SHA256)
	if _, isEdwards := key.(ed25519.PrivateKey); isEdwards {
		message = text
		options = crypto.Hash(0)
	}

	signature, err := key.Sign(rand.Reader, message, options)
	if err != nil {
		t.Fatal(err)
	}

	return base64.StdEncoding.EncodeToString(signature)
}

func newKeys(t *testing.T) map[string]crypto.Signer {
	t.Helper()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	modulus, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	return map[string]crypto.Signer{"ECDSA": curve, "Ed25519": edwards, "RSA": modulus}
}

// TestVerifyArtifact: a signature is for one artifact and of one key.
func TestVerifyArtifact(t *testing.T) {
	t.Parallel()
	others := newKeys(t)

	for name, key := range newKeys(t) {
		parsed, err := signing.ParseArtifactKey(publicPEM(t, key.Public()))
		if err != nil {
			t.Fatal(err)
		}

		other, err := signing.ParseArtifactKey(publicPEM(t, others[name].Public()))
		if err != nil {
			t.Fatal(err)
		}

		const kind = "cosign container image signature"
		good := payload(digest, kind)
		if err := signing.VerifyArtifact([]signing.ArtifactKey{other, parsed}, digest, good, sign(t, key, good)); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		for what, test := range map[string]struct {
			keys      []signing.ArtifactKey
			payload   []byte
			signature string
			want      string
		}{
			"no keys":           {nil, good, sign(t, key, good), "no given key"},
			"another key":       {[]signing.ArtifactKey{other}, good, sign(t, key, good), "no given key"},
			"a changed payload": {[]signing.ArtifactKey{parsed}, payload(digest, "x"), sign(t, key, good), "no given key"},
			"no signature":      {[]signing.ArtifactKey{parsed}, good, "", "no given key"},
			"no base64":         {[]signing.ArtifactKey{parsed}, good, "%", "not in base64"},
			"another type":      {[]signing.ArtifactKey{parsed}, payload(digest, "x"), sign(t, key, payload(digest, "x")), `has type "x"`},
			"another artifact": {
				[]signing.ArtifactKey{parsed}, payload("sha256:1", kind), sign(t, key, payload("sha256:1", kind)), "what is signed is sha256:1",
			},
			"no payload": {[]signing.ArtifactKey{parsed}, []byte("x"), sign(t, key, []byte("x")), "no payload of cosign"},
		} {
			err := signing.VerifyArtifact(test.keys, digest, test.payload, test.signature)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

func TestParseArtifactKey(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}

	good := publicPEM(t, newKeys(t)["ECDSA"].Public())
	for text, want := range map[string]string{
		"":                                 "is not in PEM",
		good + good:                        "has something after its key",
		publicPEM(t, small.Public()):       "has an RSA key of 1024 bits",
		strings.Replace(good, "M", "N", 1): "has no valid public key",
		strings.ReplaceAll(good, "PUBLIC KEY", "PRIVATE KEY"): "has a PRIVATE KEY, not a PUBLIC KEY",
	} {
		if _, err := signing.ParseArtifactKey(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// sshSign signs a text as ssh-keygen -Y sign does.
func sshSign(t *testing.T, key ssh.Signer, namespace, text string) string {
	t.Helper()
	sum := sha512.Sum512([]byte(text))
	const magic = "SSHSIG"
	signed := append([]byte(magic), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Sum                       []byte
	}{namespace, "", "sha512", sum[:]})...)
	signature, err := key.Sign(rand.Reader, signed)
	if err != nil {
		t.Fatal(err)
	}

	body := append([]byte(magic), ssh.Marshal(struct {
		Version                   uint32
		Key                       []byte
		Namespace, Reserved, Hash string
		Signature                 []byte
	}{1, key.PublicKey().Marshal(), namespace, "", "sha512", ssh.Marshal(signature)})...)

	return string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: body}))
}

func newCommitKey(t *testing.T, key crypto.Signer) (ssh.Signer, signing.CommitKey) {
	t.Helper()
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		t.Fatal(err)
	}

	parsed, err := signing.ParseCommitKey(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	if err != nil {
		t.Fatal(err)
	}

	return signer, parsed
}

// TestVerifyCommit: a signature is for one text, in git's namespace, and of one key.
func TestVerifyCommit(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	signer, key := newCommitKey(t, keys["ECDSA"])
	otherSigner, other := newCommitKey(t, keys["Ed25519"])
	both := []signing.CommitKey{other, key}

	if err := signing.VerifyCommit(both, []byte("text"), sshSign(t, signer, "git", "text")); err != nil {
		t.Error(err)
	}

	if err := signing.VerifyCommit(both, []byte("text"), sshSign(t, otherSigner, "git", "text")); err != nil {
		t.Error(err)
	}

	for what, test := range map[string]struct{ armored, want string }{
		"another text":      {sshSign(t, signer, "git", "other"), "no given key"},
		"another key":       {sshSign(t, otherSigner, "git", "text"), "no given key"},
		"another namespace": {sshSign(t, signer, "file", "text"), `namespace "file"`},
		"a PGP signature":   {"-----BEGIN PGP SIGNATURE-----\n\niQ==\n-----END PGP SIGNATURE-----\n", "is not an SSH signature"},
		"nothing":           {"", "is not an SSH signature"},
		"no content":        {string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: []byte("SSHSIG")})), "is not valid"},
	} {
		err := signing.VerifyCommit([]signing.CommitKey{key}, []byte("text"), test.armored)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", what, err)
		}
	}

	if err := signing.VerifyCommit(nil, []byte("text"), sshSign(t, signer, "git", "text")); !errors.Is(err, signing.ErrSignature) {
		t.Errorf("no keys: %v", err)
	}
}

// TestRealKeygen: what OpenSSH signs is valid, with each type of key.
func TestRealKeygen(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("SKIPPED: there is no ssh-keygen")
	}

	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		file := filepath.Join(t.TempDir(), "key")
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", kind, "-N", "", "-f", file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}

		line, err := exec.CommandContext(t.Context(), "ssh-keygen", "-y", "-f", file).Output()
		if err != nil {
			t.Fatal(err)
		}

		key, err := signing.ParseCommitKey(string(line))
		if err != nil {
			t.Fatal(err)
		}

		command := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "sign", "-n", "git", "-f", file)
		command.Stdin = strings.NewReader("text")
		armored, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}

		if err := signing.VerifyCommit([]signing.CommitKey{key}, []byte("text"), string(armored)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}

		if err := signing.VerifyCommit([]signing.CommitKey{key}, []byte("Text"), string(armored)); err == nil {
			t.Errorf("%s: another text is accepted", kind)
		}
	}
}

func TestParseCommitKey(t *testing.T) {
	t.Parallel()
	signer, _ := newCommitKey(t, newKeys(t)["Ed25519"])
	line := string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	for text, want := range map[string]string{
		"":                    "is not the public key",
		"ssh-ed25519 AAAA":    "is not the public key",
		line + line:           "has something after its key",
		`command="x" ` + line: "has options",
	} {
		if _, err := signing.ParseCommitKey(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzVerifyBundle(f *testing.F) {
	f.Add([]byte(`{"dsseEnvelope": {"payload": "e30=", "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "e30="}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := signing.VerifyBundle(nil, digest, text); err == nil {
			t.Errorf("%q is accepted without keys", text)
		}
	})
}

func FuzzVerifyCommit(f *testing.F) {
	f.Add("-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n")
	f.Fuzz(func(t *testing.T, armored string) {
		if err := signing.VerifyCommit(nil, nil, armored); err == nil {
			t.Errorf("%q is accepted without keys", armored)
		}
	})
}
