// SPDX-License-Identifier: Apache-2.0

package build

import (
	"path/filepath"
	"slices"
	"strings"
)

const (
	// conformanceModule has Kubernetes' end-to-end tests, the program that runs them in parallel,
	// and most programs of the images that the conformance tests start.
	conformanceModule = "conformance"
	// sampleServerModule has the API server that the tests of API aggregation start. It is of the
	// version in the tag of its image: the tests give it the rights that this version needs, and
	// later ones need more.
	sampleServerModule = "sample-apiserver"
)

// conformanceRecipe returns the recipe of the conformance tests. They are built on request, because
// no cluster needs them.
func conformanceRecipe() moduleRecipe {
	const images = "test/images/"

	r := kubernetesRecipe(conformanceModule)
	r.Packages = []string{"tool"}
	r.Tests = map[string]string{"e2e.test": "k8s.io/kubernetes/test/e2e"}
	r.Data = map[string]string{
		"localhost.crt":         images + "agnhost/porter/localhost.crt",
		"localhost.key":         images + "agnhost/porter/localhost.key",
		"kitten/data.json":      images + "kitten/html/data.json",
		"kitten/kitten.jpg":     images + "kitten/html/kitten.jpg",
		"nautilus/data.json":    images + "nautilus/html/data.json",
		"nautilus/nautilus.jpg": images + "nautilus/html/nautilus.jpg",
	}

	return r
}

// sampleServerRecipe returns the recipe of the API server that the tests of API aggregation start.
func sampleServerRecipe() moduleRecipe {
	return moduleRecipe{Name: sampleServerModule, Pins: "k8s.io/sample-apiserver", Packages: []string{"tool"}}
}

// conformanceSteps returns the names of the steps that only the conformance tests need.
func conformanceSteps() []string {
	names := []string{conformanceModule, sampleServerModule}
	for _, l := range conformanceDebianLayers() {
		names = append(names, l.name)
	}

	return names
}

// conformanceDebianLayers returns the layers of Debian 12's programs that stand for what the images
// of the conformance tests have upstream: most of them are built on Alpine Linux, whose packages
// cannot be had everywhere.
func conformanceDebianLayers() []debianLayer {
	return []debianLayer{
		{
			name:     "shell",
			packages: []string{"busybox-static", "bash", "libc6", "libtinfo6"},
			keeps:    keepPrograms("/bin/bash", "/bin/busybox"),
		},
		{
			name:     "network-tools",
			packages: networkToolPackages(),
			keeps:    keepPrograms("/bin/nc.openbsd", "/bin/ss", "/usr/bin/curl", "/usr/bin/dig", "/usr/bin/getent"),
		},
		{
			name: "nginx",
			packages: []string{
				"nginx", "libc6", "libcrypt1", "libpcre2-8-0", "libssl3", "zlib1g",
			},
			keeps: keepPrograms("/usr/sbin/nginx"),
		},
	}
}

// networkToolPackages returns curl, dig, getent, nc, ss and the packages with the libraries that
// they need.
func networkToolPackages() []string {
	return []string{
		"bind9-dnsutils", "bind9-libs", "curl", "iproute2", "libbpf1", "libbrotli1", "libbsd0", "libc-bin", "libc6",
		"libcap2", "libcom-err2", "libcurl4", "libedit2", "libelf1", "libffi8", "libfstrm0", "libgcc-s1", "libgmp10",
		"libgnutls30", "libgssapi-krb5-2", "libhogweed6", "libicu72", "libidn2-0", "libjemalloc2", "libjson-c5",
		"libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "libldap-2.5-0", "liblmdb0", "liblzma5",
		"libmaxminddb0", "libmd0", "libmnl0", "libnettle8", "libnghttp2-14", "libp11-kit0", "libpcre2-8-0",
		"libprotobuf-c1", "libpsl5", "librtmp1", "libsasl2-2", "libselinux1", "libssh2-1", "libssl3", "libstdc++6",
		"libtasn1-6", "libtinfo6", "libtirpc3", "libunistring2", "libuv1", "libxml2", "libxtables12", "libzstd1",
		"netcat-openbsd", "zlib1g",
	}
}

// conformanceImages returns the images that the conformance tests start, by the names and tags that
// the tests of the pinned version of Kubernetes have for them. They are served and not in the
// catalogue, which lists what clusters need.
func conformanceImages() []imageRecipe {
	const tests = "registry.k8s.io/e2e-test-images/"
	agnhost := []string{"base", "shell", "network-tools", "agnhost"}
	images := []imageRecipe{
		{Ref: tests + "busybox:1.37.0-1", Layers: []string{"base", "shell"}, Command: []string{"sh"}},
		{Ref: tests + "glibc-dns-testing:2.0.0", Layers: agnhost[:3], Command: []string{"sh"}},
		{Ref: tests + "nonewprivs:1.4", Layers: []string{"base", "shell", "nonewprivs"}, Command: []string{"nnp"}},
		{Ref: tests + "nonroot:1.5", Layers: []string{"base", "shell"}, Command: []string{"sh"}, User: "1234"},
		{
			Ref:        tests + "sample-apiserver:1.29.2",
			Layers:     []string{"base", sampleServerModule},
			Entrypoint: []string{"/sample-apiserver"},
		},
		{Ref: "registry.k8s.io/etcd:3.6.8-0", Layers: []string{"base", "etcd"}},
		{Ref: "registry.k8s.io/pause:3.10.2", Layers: []string{"pause"}, Entrypoint: []string{"/pause"}},
	}

	for _, version := range []string{"2.63.0", "2.55"} {
		images = append(images, agnhostImage(tests+"agnhost:"+version, agnhost, "pause"))
	}

	for _, name := range []string{"kitten", "nautilus"} {
		layers := append(slices.Clone(agnhost), name)
		images = append(images, agnhostImage(tests+name+":1.8", layers, "test-webserver"))
	}

	for _, version := range []string{"1.15-4", "1.27-0"} {
		images = append(images, imageRecipe{
			Ref:     tests + "nginx:" + version,
			Layers:  []string{"base", "shell", "nginx"},
			Command: []string{"nginx", "-g", "daemon off;"},
		})
	}

	for i := range images {
		images[i].Name = images[i].Ref
		images[i].Module = conformanceModule
		images[i].Unlisted = true
	}

	return images
}

func agnhostImage(ref string, layers []string, command string) imageRecipe {
	return imageRecipe{
		Ref:        ref,
		Layers:     layers,
		Entrypoint: []string{"/agnhost"},
		Command:    []string{command},
	}
}

// listConformanceLayer returns the entries of a layer of the images of the conformance tests; none
// if name is not such a layer.
func (b *builder) listConformanceLayer(name string) ([]archiveEntry, error) {
	root := filepath.Join(b.stepDirs[name], "root")
	programs := filepath.Join(b.stepDirs[conformanceModule], "bin")
	data := filepath.Join(b.stepDirs[conformanceModule], "data")

	switch name {
	case "shell":
		return shellLayer(root)
	case "network-tools":
		return networkToolsLayer(root)
	case "nginx":
		entries, err := listTree(root)
		return append(entries, nginxSettings()...), err
	case "agnhost":
		return agnhostLayer(programs, data), nil
	case "nonewprivs":
		return []archiveEntry{
			// Upstream's image sets both bits: a test tries to become root by them.
			{name: "usr/local/bin/nnp", source: filepath.Join(programs, "nonewprivs"), mode: 0o6755},
		}, nil
	case sampleServerModule:
		return listPrograms(filepath.Join(b.stepDirs[name], "bin"), "")
	case "kitten", "nautilus":
		picture := name + ".jpg"
		return []archiveEntry{
			{name: picture, source: filepath.Join(data, name, picture), mode: 0o644},
			{name: "data.json", source: filepath.Join(data, name, "data.json"), mode: 0o644},
		}, nil
	}

	return nil, nil
}

// shellScript starts Debian's busybox, as the shell of upstream's images is one too, and tests
// expect its messages. But it drops variables whose names are no identifiers, such as data-1, which
// other tests look for; bash passes them on.
const shellScript = `#!/bin/bash
while IFS= read -r -d '' entry; do
  [[ ${entry%%=*} == *[!A-Za-z0-9_]* ]] && exec -a "$0" /bin/bash "$@"
done </proc/self/environ
exec -a "$0" /bin/busybox "$@"
`

// shellLayer returns bash, busybox, and a link for each command of busybox that tests call.
func shellLayer(root string) ([]archiveEntry, error) {
	const commands = "[ [[ awk base64 basename cat chgrp chmod chown cmp cp cut date dd df diff dirname dmesg du echo " +
		"egrep env expr false fgrep find fold free grep groups gunzip gzip head hexdump hostname id " +
		"ifconfig ip kill killall less ln ls md5sum mkdir mkfifo mktemp more mount mv nc netstat nl nproc " +
		"nslookup od pidof ping printf ps pwd readlink realpath rev rm rmdir route sed seq setsid sha1sum " +
		"sha256sum sha512sum shuf sleep sort stat strings stty su sync sysctl tac tail tar tee test time " +
		"timeout top touch tr traceroute true truncate tty umount uname uniq unlink uptime usleep vi watch " +
		"wc wget which whoami xargs xxd yes zcat"

	entries, err := listTree(root)
	entries = append(
		entries,
		archiveEntry{name: "bin/sh", data: []byte(shellScript), mode: 0o755},
		archiveEntry{name: "root", dir: true, mode: 0o755},
		archiveEntry{name: "var/tmp", dir: true, mode: 0o1777},
	)

	for name := range strings.FieldsSeq(commands) {
		entries = append(entries, archiveEntry{name: "bin/" + name, linkTarget: "busybox", mode: 0o777})
	}

	return entries, err
}

// networkToolsLayer returns the network tools. Their shell is bash: that of busybox starts its own
// nc, which lacks options.
func networkToolsLayer(root string) ([]archiveEntry, error) {
	entries, err := listTree(root)

	return append(
		entries,
		archiveEntry{name: "bin/nc", linkTarget: "nc.openbsd", mode: 0o777},
		archiveEntry{name: "bin/sh", linkTarget: "bash", mode: 0o777},
	), err
}

// agnhostLayer returns agnhost and what its image has in addition: a second name, a certificate for
// one of its commands, a directory for another one, a user in a group, and the name of the system
// that upstream's image is built on.
func agnhostLayer(programs, data string) []archiveEntry {
	return []archiveEntry{
		{name: "agnhost", source: filepath.Join(programs, "agnhost"), mode: 0o755},
		{name: "agnhost-2", linkTarget: "agnhost", mode: 0o777},
		{name: "localhost.crt", source: filepath.Join(data, "localhost.crt"), mode: 0o644},
		{name: "localhost.key", source: filepath.Join(data, "localhost.key"), mode: 0o644},
		{name: "uploads", dir: true, mode: 0o755},
		{name: "etc/os-release", mode: 0o644, data: []byte("NAME=\"Debian, in place of Alpine Linux\"\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte(
			"root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n",
		)},
		{name: "etc/group", mode: 0o644, data: []byte(
			"root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
		)},
	}
}

// nginxSettings returns the directories and settings of nginx: it serves one page at port 80.
func nginxSettings() []archiveEntry {
	const settings = `user root root;
error_log /dev/stderr;
pid /run/nginx.pid;
events {}
http {
  access_log /dev/stdout;
  server {
    listen 80;
    root /usr/share/nginx/html;
  }
}
`
	const page = "<html><head><title>Welcome to nginx!</title></head><body>Welcome to nginx!</body></html>\n"

	return []archiveEntry{
		{name: "etc/nginx/nginx.conf", mode: 0o644, data: []byte(settings)},
		{name: "usr/share/nginx/html/index.html", mode: 0o644, data: []byte(page)},
		{name: "var/lib/nginx", dir: true, mode: 0o755},
		{name: "var/log/nginx", dir: true, mode: 0o755},
		{name: "run", dir: true, mode: 0o755},
	}
}
