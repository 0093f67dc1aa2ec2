// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread inside the namespace. Sockets and processes that f creates stay in
// that namespace. If the thread cannot return to its own namespace, it ends with its goroutine.
func inNamespace(ns netns.NsHandle, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("open own network namespace: %w", err)
			return
		}

		defer closeHandle(own)
		if err := netns.Set(ns); err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("enter network namespace: %w", err)
			return
		}

		err = f()
		if netns.Set(own) == nil {
			runtime.UnlockOSThread()
		}

		result <- err
	}()

	return <-result
}

// closeHandle closes a namespace handle. Errors are ignored because the descriptor is read-only.
func closeHandle(ns netns.NsHandle) { _ = ns.Close() }

// Listen opens a listening TCP socket ("host:port") in the network namespace at path. The socket
// stays in that namespace.
func Listen(ctx context.Context, path, addr string) (net.Listener, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}

	defer closeHandle(ns)

	return listenTCP(ctx, ns, addr)
}

func listenTCP(ctx context.Context, ns netns.NsHandle, addr string) (net.Listener, error) {
	var ln net.Listener
	err := inNamespace(ns, func() error {
		var lc net.ListenConfig
		var err error
		ln, err = lc.Listen(ctx, "tcp4", addr)

		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}

	return ln, nil
}

func listenUDP(ctx context.Context, ns netns.NsHandle, addr string) (net.PacketConn, error) {
	var pc net.PacketConn
	err := inNamespace(ns, func() error {
		var lc net.ListenConfig
		var err error
		pc, err = lc.ListenPacket(ctx, "udp4", addr)

		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s/udp: %w", addr, err)
	}

	return pc, nil
}

// ensureNamespace opens the named namespace. It creates it if it does not exist; then fresh is
// true.
func ensureNamespace(path string) (ns netns.NsHandle, fresh bool, err error) {
	if isNamespace(path) {
		ns, err = netns.GetFromPath(path)
		return ns, false, err
	}

	if err := shareMount(filepath.Dir(path)); err != nil {
		return netns.None(), false, err
	}

	file, err := os.OpenFile(
		path,
		os.O_CREATE|os.O_RDONLY,
		0o444,
	)
	if err != nil {
		return netns.None(), false, fmt.Errorf("create network namespace: %w", err)
	}

	if err := errors.Join(file.Close(), createNamespace(path)); err != nil {
		return netns.None(), false, errors.Join(err, os.Remove(path))
	}

	ns, err = netns.GetFromPath(path)

	return ns, true, err
}

// createNamespace creates a namespace on a separate thread and binds it to the file at path.
func createNamespace(path string) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}

		defer closeHandle(own)
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
		}

		if netns.Set(own) == nil {
			runtime.UnlockOSThread()
		}

		if err != nil {
			err = fmt.Errorf("create network namespace %s (requires root): %w", path, err)
		}

		result <- err
	}()

	return <-result
}

// shareMount makes the directory a shared mount, as ip-netns(8) does. Otherwise a mount namespace
// created in between would hold copies of the bind mounts and keep the namespaces alive.
func shareMount(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("create directory of network namespaces: %w", err)
	}

	err := unix.Mount("", folder, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) {
		if err := unix.Mount(folder, folder, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind-mount %s on itself: %w", folder, err)
		}

		err = unix.Mount("", folder, "none", unix.MS_SHARED|unix.MS_REC, "")
	}

	if err != nil {
		return fmt.Errorf("make mount %s shared: %w", folder, err)
	}

	return nil
}

// isNamespace reports whether a namespace is bound to path. After a crash or a reboot, only a plain
// file is left.
func isNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// removeNamespace deletes the namespace's links and its name. It succeeds if there is none.
func removeNamespace(path string) error {
	if isNamespace(path) {
		if err := deleteLinks(path); err != nil {
			return err
		}

		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount network namespace %s: %w", path, err)
		}
	}

	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace: %w", err)
	}

	return nil
}

// deleteLinks deletes veths and bridges immediately. The kernel would delete them only after the
// last process and socket.
func deleteLinks(path string) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}

	defer closeHandle(ns)
	nl, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", path, err)
	}

	defer nl.Close()
	links, err := nl.LinkList()
	if err != nil {
		return fmt.Errorf("list links in %s: %w", path, err)
	}

	for _, l := range links {
		if t := l.Type(); t != "veth" && t != "bridge" {
			continue
		}

		if err := nl.LinkDel(l); err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) &&
			!errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete link %s in %s: %w", l.Attrs().Name, path, err)
		}
	}

	return nil
}
