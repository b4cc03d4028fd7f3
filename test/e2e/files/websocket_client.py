"""Sends a message to the server at the address, waits for the file /tmp/go, and sends another one."""
import asyncio
import os
import sys
import websockets


async def connect(uri):
    while True:
        try:
            return await websockets.connect(uri, ping_interval=None)
        except OSError:
            await asyncio.sleep(0.2)


async def main():
    socket = await connect(f"ws://{sys.argv[1]}:8080")
    await socket.send("before")
    print(await socket.recv(), flush=True)
    while not os.path.exists("/tmp/go"):
        await asyncio.sleep(0.2)
    await socket.send("after")
    print(await socket.recv(), flush=True)
    await socket.close()


asyncio.run(main())
