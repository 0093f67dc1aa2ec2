// SPDX-License-Identifier: Apache-2.0

package guardedhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/guardedhttp"
)

func newOptions(origin string) guardedhttp.Options {
	return guardedhttp.Options{Origin: origin, PlainText: true, MaxBytes: 1 << 10}
}

// allowLoopback lets tests reach their servers at 127.0.0.1 and at no other address of the machine.
func allowLoopback(o guardedhttp.Options) guardedhttp.Options {
	o.Allowed = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	return o
}

func start(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)

	return server
}

func get(t *testing.T, client *http.Client, address string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}

	request.Header.Set("Authorization", "Basic secret")
	response, err := client.Do(request)
	if err != nil {
		return "", guardedhttp.Cause(err)
	}

	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}

	return string(body), nil
}

// TestAddressesOfTheMachine: a server cannot be, and cannot refer to, what only the machine reaches.
func TestAddressesOfTheMachine(t *testing.T) {
	t.Parallel()

	for _, target := range []string{
		"169.254.169.254", "169.254.170.2", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "0.0.0.0:1", "[::]:1",
		"[fd00:ec2::254]", "[fe80::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "224.0.0.1", "localhost:1",
		"0x7f.1:1", "2852039166",
	} {
		_, err := get(t, guardedhttp.NewClient(newOptions(target)), "http://"+target+"/latest/meta-data/")
		if err == nil {
			t.Errorf("%s is reached", target)
		}

		if strings.HasPrefix(target, "0x") || strings.HasPrefix(target, "2852") {
			continue // names that the resolver of some systems takes for addresses
		}

		if !errors.Is(err, guardedhttp.ErrForbidden) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// TestRedirects: a redirect does not lead to the metadata service or into a private network, and takes no credentials along.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var seen []string
	other := start(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, "blob")
	})
	server := start(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	origin := strings.TrimPrefix(server.URL, "http://")
	client := guardedhttp.NewClient(allowLoopback(newOptions(origin)))
	ask := func(to string) (string, error) {
		return get(t, client, server.URL+"/?to="+url.QueryEscape(to))
	}

	body, err := ask(other.URL + "/blob?signature=secret")
	if err != nil || body != "blob" || len(seen) != 1 || seen[0] != "" {
		t.Errorf("a redirect to another host: %q, %v, credentials %q", body, err, seen)
	}

	for to, want := range map[string]string{
		"http://169.254.169.254/latest/meta-data/": "of the machine itself or of its metadata",
		"http://10.0.0.1:1/?secret":                "is at the private address 10.0.0.1",
		"http://192.168.1.1:1/":                    "is at the private address",
		"http://100.64.0.1:1/":                     "is at the private address",
		"http://[fd12::1]:1/":                      "is at the private address",
		"http://user@" + origin + "/":              "has a user name",
		"ftp://example.com/":                       "is not asked over ftp",
		"/?to=" + url.QueryEscape("/?to="+url.QueryEscape("/?to="+url.QueryEscape("/?to="+url.QueryEscape("/?to="+
			url.QueryEscape("/?to="+url.QueryEscape(other.URL)))))): "more than 5 redirects",
	} {
		_, err := ask(to)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("a redirect to %s: %v", to, err)
		}
	}
}

// TestNoDowngrade: a redirect from HTTPS does not lead to HTTP.
func TestNoDowngrade(t *testing.T) {
	t.Parallel()
	plain := start(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was sent in plain text") })
	server := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(server.Close)
	transport, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}

	options := allowLoopback(newOptions(strings.TrimPrefix(server.URL, "https://")))
	options.PlainText = false
	options.TLS = transport.TLSClientConfig
	client := guardedhttp.NewClient(options)
	if _, err := get(t, client, server.URL); err == nil || !strings.Contains(err.Error(), "is not asked over http") {
		t.Errorf("got %v", err)
	}
}

// TestProxy: requests go through the proxy, which may be at any address, but not for an address of the machine.
func TestProxy(t *testing.T) {
	t.Parallel()
	var targets []string
	proxy := start(t, func(w http.ResponseWriter, r *http.Request) {
		targets = append(targets, r.URL.Host)
		_, _ = io.WriteString(w, "through the proxy")
	})
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}

	options := newOptions("registry.invalid")
	options.Proxy = http.ProxyURL(address)
	client := guardedhttp.NewClient(options)
	if body, err := get(t, client, "http://registry.invalid/"); err != nil || body != "through the proxy" {
		t.Errorf("%q, %v", body, err)
	}

	for _, target := range []string{"169.254.169.254", "127.0.0.1", "[fd00:ec2::254]"} {
		if _, err := get(t, client, "http://"+target+"/"); !errors.Is(err, guardedhttp.ErrForbidden) {
			t.Errorf("%s through the proxy: %v", target, err)
		}
	}

	if len(targets) != 1 || targets[0] != "registry.invalid" {
		t.Errorf("the proxy was asked for %q", targets)
	}

	// Without a proxy, its address is one of the machine.
	direct := guardedhttp.NewClient(newOptions(address.Host))
	if _, err := get(t, direct, proxy.URL); !errors.Is(err, guardedhttp.ErrForbidden) {
		t.Errorf("%v", err)
	}
}

// TestMaxBytes: an answer that is larger than the limit is an error, with and without its length.
func TestMaxBytes(t *testing.T) {
	t.Parallel()
	server := start(t, func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.URL.Query().Get("size"))
		if err != nil {
			t.Error(err)
		}

		_, _ = io.WriteString(w, strings.Repeat("x", size))
	})
	client := guardedhttp.NewClient(allowLoopback(newOptions(strings.TrimPrefix(server.URL, "http://"))))
	for size, isFine := range map[string]bool{"1024": true, "1025": false, "1000000": false} {
		response, err := client.Get(server.URL + "?size=" + size)
		if err != nil {
			t.Fatal(err)
		}

		_, err = io.ReadAll(response.Body)
		if (err == nil) != isFine {
			t.Errorf("%s bytes: %v", size, err)
		}

		_ = response.Body.Close()
	}
}
