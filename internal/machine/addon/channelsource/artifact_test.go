// SPDX-License-Identifier: Apache-2.0

package channelsource_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/machine/addon/channelsource"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// checkRefused checks that a source is refused, with the source and the revision in the error.
func checkRefused(t *testing.T, f channelsource.Fetcher, s published.Source, revision, want string) {
	t.Helper()
	got, err := f.Fetch(t.Context(), s, "")
	text := fmt.Sprint(err, diag.Hints(err))
	if err == nil || !strings.Contains(text, want) || !strings.Contains(text, "read "+s.String()) ||
		!strings.Contains(text, revision) || got.Files != nil {
		t.Errorf("got %v, want %s of %s", err, want, revision)
	}
}

// TestFetchArtifact follows a tag, and reads nothing but the manifest while it names the known revision.
func TestFetchArtifact(t *testing.T) {
	t.Parallel()
	f := startRegistry(t)
	first := f.push("stable", "2026-01-02T03:04:05Z", map[string]string{"channel.yaml": "one", "demo/channel.yaml": "two", "demo/a/b": "c"})
	f.sign(first, f.key)

	got, err := f.fetcher.Fetch(t.Context(), f.source(":stable"), "")
	if err != nil || got.ID != first || string(got.Files["channel.yaml"]) != "one" || len(got.Files) != 3 ||
		!got.Created.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Fatalf("%+v, %v", got, err)
	}

	below := f.source("@" + first)
	below.Path = "demo"
	got, err = f.fetcher.Fetch(t.Context(), below, "")
	if err != nil || string(got.Files["channel.yaml"]) != "two" || string(got.Files["a/b"]) != "c" || len(got.Files) != 2 {
		t.Errorf("%+v, %v", got, err)
	}

	f.setAnswer(nil)
	if got, err = f.fetcher.Fetch(t.Context(), f.source(":stable"), first); err != nil || got.ID != first || got.Files != nil {
		t.Errorf("the same revision: %+v, %v", got, err)
	}

	if read := f.seen(); read != "GET /v2/, GET /v2/channels/base/manifests/stable" {
		t.Errorf("the same revision makes the requests %s", read)
	}

	below.Path = "other"
	checkRefused(t, f.fetcher, below, first, "has no files there")
	checkRefused(t, f.fetcher, f.source(":missing"), "", "check the reference")
}

// TestChangedArtifact: what somebody without the key puts under a tag is refused, whatever signature it has.
func TestChangedArtifact(t *testing.T) {
	t.Parallel()
	f := startRegistry(t)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	good := f.push("stable", "", map[string]string{"channel.yaml": "good"})
	f.sign(good, f.key)
	if _, err := f.fetcher.Fetch(t.Context(), f.source(":stable"), ""); err != nil {
		t.Fatal(err)
	}

	bad := f.push("stable", "", map[string]string{"channel.yaml": "bad"})
	checkRefused(t, f.fetcher, f.source(":stable"), bad, "its signature is refused: tag sha256-")
	if _, err := f.fetcher.Fetch(t.Context(), f.source(":stable"), good); err == nil {
		t.Error("it is accepted if the good revision is known")
	}

	f.sign(bad, stranger)
	checkRefused(t, f.fetcher, f.source(":stable"), bad, "no given key has made the signature")
	f.signAs(bad, good, f.key) // the signature of the good artifact
	checkRefused(t, f.fetcher, f.source(":stable"), bad, "what is signed is "+good)

	withoutKeys := f.source(":stable")
	withoutKeys.PublicKeys = nil
	if got, err := f.fetcher.Fetch(t.Context(), withoutKeys, ""); err != nil || got.ID != bad {
		t.Errorf("without keys nothing is verified: %v", err)
	}

	withoutKeys.PublicKeys = []string{"no key"}
	checkRefused(t, f.fetcher, withoutKeys, "", "public key 1 is not in PEM")

	f.sign(bad, f.key)
	if got, err := f.fetcher.Fetch(t.Context(), f.source(":stable"), good); err != nil || string(got.Files["channel.yaml"]) != "bad" {
		t.Errorf("signed at last: %v", err)
	}
}

// TestPlainRegistry: a registry without TLS, such as that of the local region, is asked only if the reference says so.
func TestPlainRegistry(t *testing.T) {
	t.Parallel()
	f := startRegistryWith(t, httptest.NewServer)
	digest := f.push("stable", "", map[string]string{"channel.yaml": "x"})
	f.sign(digest, f.key)
	source := f.source(":stable")
	checkRefused(t, f.fetcher, source, "", "server gave HTTP response to HTTPS client")

	source.OCI = strings.Replace(source.OCI, "oci://", "oci+http://", 1)
	if got, err := f.fetcher.Fetch(t.Context(), source, ""); err != nil || got.ID != digest {
		t.Errorf("%+v, %v", got, err)
	}

	unsigned := f.push("stable", "", map[string]string{"channel.yaml": "y"})
	checkRefused(t, f.fetcher, source, unsigned, "its signature is refused")
}

// TestBundles: a signature of cosign 3 is one of the artifact, and a statement of another purpose is none.
func TestBundles(t *testing.T) {
	t.Parallel()
	f := startRegistry(t)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	const purpose = "https://sigstore.dev/cosign/sign/v1"
	good := f.push("stable", "", map[string]string{"channel.yaml": "good"})
	f.signBundle(good, good, purpose, f.key)
	if got, err := f.fetcher.Fetch(t.Context(), f.source(":stable"), ""); err != nil || string(got.Files["channel.yaml"]) != "good" {
		t.Fatalf("%+v, %v", got, err)
	}

	for n, test := range []struct {
		signed  string
		purpose string
		key     *ecdsa.PrivateKey
		want    string
	}{
		{"", purpose, stranger, "no given key has made the signature"},
		{good, purpose, f.key, "what is signed is not about"},
		{"", "https://slsa.dev/provenance/v1", f.key, "has type \"https://slsa.dev/provenance/v1\""},
	} {
		bad := f.push("stable", "", map[string]string{"channel.yaml": strconv.Itoa(n)})
		signed := test.signed
		if signed == "" {
			signed = bad
		}

		f.signBundle(bad, signed, test.purpose, test.key)
		checkRefused(t, f.fetcher, f.source(":stable"), bad, test.want)
	}
}

// TestOtherBytes: a registry that serves other bytes for a digest is refused: those of the artifact, of its layer and of a
// payload.
func TestOtherBytes(t *testing.T) {
	t.Parallel()
	f := startRegistry(t)
	good := f.push("stable", "", map[string]string{"channel.yaml": "good"})
	other := f.push("other", "", map[string]string{"channel.yaml": "other"})
	f.sign(good, f.key)
	f.sign(other, f.key)

	for part, want := range map[string]string{
		"/manifests/" + good: "manifest digest",
		"/manifests/stable":  "",
		"/blobs/":            "",
	} {
		f.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, part) || strings.HasSuffix(r.URL.Path, ".sig") {
				return false
			}

			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = w.Write([]byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":[]}`))

			return true
		})

		for _, reference := range []string{"@" + good, ":stable"} {
			if part == "/manifests/"+good && reference == ":stable" || part == "/manifests/stable" && reference != ":stable" {
				continue
			}

			got, err := f.fetcher.Fetch(t.Context(), f.source(reference), "")
			if err == nil || !strings.Contains(err.Error(), want) || got.Files != nil {
				t.Errorf("other bytes of %s for %s: %v", part, reference, err)
			}
		}
	}
}

// TestHostileRegistries: what a registry answers leads to no address of the machine, is limited, and gets no credentials that
// are not for it.
func TestHostileRegistries(t *testing.T) {
	t.Parallel()
	f := startRegistry(t)
	source := f.source(":stable")
	source.Credentials = published.Credentials{User: "robot", Password: "hunter2"}

	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"a redirect to the metadata service": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://169.254.169.254/latest/meta-data/iam/security-credentials/", http.StatusFound)
			},
			"an address of the machine itself or of its metadata",
		},
		"a redirect to the metadata service over HTTP": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
			},
			"is not asked over http",
		},
		"tokens from the metadata service": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="https://169.254.169.254/latest/api/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			},
			"is a private or link-local address",
		},
		"tokens over HTTP": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://example.com/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			},
			"not allowed for a secure registry",
		},
		"an endless manifest": {
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					return
				}

				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				for range 40 {
					_, _ = w.Write(make([]byte, 1<<20))
				}
			},
			"more than the limit",
		},
	} {
		f.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
			test.answer(w, r)
			return true
		})

		_, err := f.fetcher.Fetch(t.Context(), source, "")
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}

	if text := fmt.Sprintf("%v %+v %#v", source, source, source); strings.Contains(text, "hunter2") {
		t.Errorf("a source is printed with its password: %s", text)
	}
}

// TestArtifactCredentials: credentials are for the registry only, and never sent over HTTP. The role's are for Amazon ECR.
func TestArtifactCredentials(t *testing.T) {
	t.Parallel()
	f := startRegistry(t)
	f.sign(f.push("stable", "", map[string]string{"channel.yaml": "x"}), f.key)
	f.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if user == "robot" && password == "hunter2" {
			return false
		}

		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)

		return true
	})

	source := f.source(":stable")
	checkRefused(t, f.fetcher, source, "", "check the reference, the credentials")
	source.Credentials = published.Credentials{User: "robot", Password: "hunter2"}
	if _, err := f.fetcher.Fetch(t.Context(), source, ""); err != nil {
		t.Error(err)
	}

	source.OCI = strings.Replace(source.OCI, "oci://", "oci+http://", 1)
	checkRefused(t, f.fetcher, source, "", "credentials are not sent over HTTP")

	asked := ""
	fetcher := channelsource.Fetcher{Login: func(_ context.Context, r ecraddress.Registry) (published.Credentials, error) {
		asked = r.Host
		return published.Credentials{}, errors.New("no role")
	}}
	checkRefused(t, fetcher, published.Source{OCI: "oci://123456789012.dkr.ecr.us-east-1.amazonaws.com/a:b"}, "", "no role")
	if asked != "123456789012.dkr.ecr.us-east-1.amazonaws.com" {
		t.Errorf("a token for %q is asked for", asked)
	}
}

// TestArchives: an archive has only files below its root, and limited ones.
func TestArchives(t *testing.T) {
	t.Parallel()
	f := startRegistry(t)
	many := map[string]string{}
	for n := range 2001 {
		many[strconv.Itoa(n)] = "x"
	}

	for want, files := range map[string]map[string]string{
		`it has the file "../channel.yaml"`:       {"../channel.yaml": "x"},
		`it has the file "/etc/passwd"`:           {"/etc/passwd": "x"},
		"neither a file nor a directory":          {"channel.yaml": "-> /etc/slipway/boot.json"},
		"it has more than 2000 files":             many,
		"its files have more than 16777216 bytes": {"channel.yaml": strings.Repeat("x", 16<<20+1)}, // 16 KB compressed
	} {
		digest := f.push("stable", "", files)
		f.sign(digest, f.key)
		checkRefused(t, f.fetcher, f.source(":stable"), digest, want)
	}
}
