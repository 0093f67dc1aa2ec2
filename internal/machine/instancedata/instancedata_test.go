// SPDX-License-Identifier: Apache-2.0

package instancedata_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/machine/instancedata"
)

const mac = "0e:49:61:0f:c3:11"

// values are those of a metadata service, by path; it answers 404 for all others, and 500 for one.
func values() map[string]string {
	return map[string]string{
		"/latest/meta-data/instance-id":                                       "i-0123456789abcdef0",
		"/latest/meta-data/mac":                                               mac,
		"/latest/meta-data/network/interfaces/macs/":                          mac + "/",
		"/latest/meta-data/network/interfaces/macs/" + mac + "/interface-id":  "eni-1",
		"/latest/meta-data/network/interfaces/macs/" + mac + "/local-ipv4s":   "10.80.0.4\n10.80.0.5",
		"/latest/meta-data/iam/security-credentials/machine":                  "SECRET",
		"/latest/meta-data/tags/instance/Name":                                "SECRET",
		"/latest/user-data":                                                   "SECRET",
		"/latest/dynamic/instance-identity/pkcs7":                             "SECRET",
		"/latest/meta-data/network/interfaces/macs/" + mac + "/ipv4-prefix/x": "SECRET",
	}
}

// newClient returns a client of the handler, with the address that it is served at.
func newClient(t *testing.T) (*imds.Client, string) {
	t.Helper()
	known := values()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, ok := known[r.URL.Path]
		switch {
		case r.Method == http.MethodPut:
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
			_, _ = io.WriteString(w, "SECRET")
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "SECRET":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, "/vpc-id"):
			w.WriteHeader(http.StatusInternalServerError)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, value)
		}
	}))
	t.Cleanup(service.Close)
	handler := httptest.NewServer(instancedata.Handler{
		Source:   imds.New(imds.Options{Endpoint: service.URL, Retryer: aws.NopRetryer{}}),
		Identity: instancedata.Identity{Region: "us-east-1", InstanceID: "i-0123456789abcdef0"},
		Log:      slog.New(slog.DiscardHandler),
	})
	t.Cleanup(handler.Close)

	return imds.New(imds.Options{Endpoint: handler.URL, Retryer: aws.NopRetryer{}}), handler.URL
}

// read returns a value, or the error of the client.
func read(t *testing.T, c *imds.Client, path string) (string, error) {
	t.Helper()
	out, err := c.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", err
	}
	defer out.Content.Close()
	body, err := io.ReadAll(out.Content)
	if err != nil {
		t.Fatal(err)
	}

	return string(body), nil
}

// TestValues: the client of AWS's SDK reads what a network plugin needs, as from the metadata service.
func TestValues(t *testing.T) {
	c, _ := newClient(t)
	for path, want := range map[string]string{
		"instance-id":              "i-0123456789abcdef0",
		"network/interfaces/macs/": mac + "/",
		"network/interfaces/macs/" + mac + "/interface-id": "eni-1",
		"network/interfaces/macs/" + mac + "/local-ipv4s":  "10.80.0.4\n10.80.0.5",
	} {
		if got, err := read(t, c, path); err != nil || got != want {
			t.Errorf("%s: %q and %v, want %q", path, got, err, want)
		}
	}

	region, err := c.GetRegion(t.Context(), nil)
	if err != nil || region.Region != "us-east-1" {
		t.Errorf("the region is %+v, %v", region, err)
	}

	// A value that does not exist, such as the prefixes of an interface without any, is 404 for a client, which takes it for empty.
	for path, status := range map[string]int{"local-ipv4": 404, "network/interfaces/macs/" + mac + "/vpc-id": 502} {
		_, err := read(t, c, path)
		answer, ok := errors.AsType[*smithyhttp.ResponseError](err)
		if !ok || answer.HTTPStatusCode() != status {
			t.Errorf("%s: %v, want status %d", path, err, status)
		}
	}
}

// TestSecretsAreNotServed: neither the role's credentials nor anything else that is not listed can be read, however the path is written.
func TestSecretsAreNotServed(t *testing.T) {
	_, address := newClient(t)
	for _, path := range []string{
		"/latest/meta-data/iam/security-credentials/machine",
		"/latest/meta-data/iam/security-credentials/",
		"/latest/meta-data/mac/../iam/security-credentials/machine",
		"/latest/meta-data/network/interfaces/macs/../../../iam/security-credentials/machine",
		"/latest/meta-data/network/interfaces/macs/%2e%2e/%2e%2e/%2e%2e/iam/security-credentials/machine",
		"/latest/meta-data/network/interfaces/macs/" + mac + "/ipv4-prefix/x",
		"/latest/meta-data//iam/security-credentials/machine",
		"/latest/meta-data/tags/instance/Name",
		"/latest/meta-data/",
		"/latest/user-data",
		"/latest/dynamic/instance-identity/pkcs7",
		"/2021-01-03/meta-data/iam/security-credentials/machine",
		"/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			request, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.URL.Opaque = path // as it is
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode < 400 || strings.Contains(string(body), "SECRET") {
				t.Errorf("%s %s: status %d, %v: %s", method, path, answer.StatusCode, err, body)
			}
			answer.Body.Close()
		}
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address+"/latest/api/token", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || strings.Contains(string(body), "SECRET") {
		t.Errorf("a client gets the token of the metadata service: %s, %v", body, err)
	}
}
