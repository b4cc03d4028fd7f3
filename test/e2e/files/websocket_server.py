"""Answers each message of a WebSocket with its number on that connection."""
import asyncio
import websockets


async def count(socket, path=None):
    n = 0
    async for message in socket:
        n += 1
        await socket.send(f"{n} {message}")


async def main():
    async with websockets.serve(count, "0.0.0.0", 8080, ping_interval=None):
        await asyncio.Future()


asyncio.run(main())
